"""What kernels of several operations are made of: accepted types, copies, scratchpads, nests of
elements at equal indices, and kernels for all sizes.
"""
