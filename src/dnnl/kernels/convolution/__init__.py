"""Convolution and deconvolution, and chains of a convolution and a depthwise one."""
