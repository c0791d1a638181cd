"""What attributes do to values: scales and zero points, dropout, post-ops, stochastic rounding."""
