"""Models as values: typed nodes in order, whose sizes may be expressions."""
