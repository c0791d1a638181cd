"""Compensation of zero points and shifted signed bytes: sums along K of columns of weights and of
rows of src, whole or by segments."""
