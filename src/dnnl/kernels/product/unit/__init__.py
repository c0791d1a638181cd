"""Tiles of a matrix unit, and epilogues that are deferred to run beside the next tile's
products.
"""
