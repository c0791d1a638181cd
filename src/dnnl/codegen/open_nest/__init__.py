"""Nests with open sizes: extents and strides that are known at execution only."""
