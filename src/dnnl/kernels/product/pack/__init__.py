"""Operands in the layout that register tiles read: packed on the fly, repacked, up-converted,
or unpacked from 4-bit and sparse storage.
"""
