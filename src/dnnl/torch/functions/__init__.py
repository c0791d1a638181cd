"""Primitives as differentiable functions of PyTorch: custom operators with gradients."""
