"""Sums along k that zero points and signed bytes need: of columns of weights, of rows of src,
in segments.
"""
