"""Gradients of the functions on arrays, `dnnl.ops`, for tensors of PyTorch."""
