"""Kernels that move elements: concat, gather, shuffle."""
