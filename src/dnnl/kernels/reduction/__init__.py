"""Kernels that reduce axes: reduction and softmax."""
