"""Matmul and inner product: dense, grouped, sparse, exact in integers, and for run-time sizes."""
