"""The generator of loop nests: an iteration space, operands, a body on vectors; loops, tiles,
masks of tails and work items follow.
"""
