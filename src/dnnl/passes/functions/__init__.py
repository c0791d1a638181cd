"""Several elementwise nodes as one function."""
