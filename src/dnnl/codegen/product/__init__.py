"""The generator of register tiles of products: dot-product instructions, matrix units, and
operands that are unpacked on the way.
"""
