"""Attributes: scales, zero points, dropout, post-ops, stochastic rounding."""
