"""Kernels whose element of dst depends on a window of src: pooling, LRN, resampling."""
