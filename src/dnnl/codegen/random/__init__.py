"""Random numbers that follow from the index of an element alone."""
