"""Counter-based random numbers: a function of the index of an element."""
