"""Operands in the layout that register tiles read: packed on the fly, repacked, up-converted, or
decoded from 4-bit and sparse storage."""
