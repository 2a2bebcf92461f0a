"""Images: what containers need to run T0 to T2."""
