"""Elementary functions of f32 and f64 vectors, their constants and error bounds, arithmetic of
integer vectors, and exact integer division by constants.
"""
