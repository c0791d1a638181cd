"""Kernels that change layouts and types."""
