"""Kernels whose element of dst depends on the elements at the same index: eltwise, binary, sum,
prelu.
"""
