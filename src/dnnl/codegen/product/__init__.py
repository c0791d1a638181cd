"""The generator of register tiles of matrix products: dot-product instructions, matrix units, and
operands that are unpacked in registers."""
