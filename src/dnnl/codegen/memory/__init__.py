"""Addresses of elements as affine forms of loop variables; loads and stores of operands."""
