"""What people see: the terminal, and later HTML and Markdown."""
