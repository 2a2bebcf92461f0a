"""Statistics: pure functions over arrays."""
