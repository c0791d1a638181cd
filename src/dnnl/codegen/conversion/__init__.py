"""Elements as they are stored and values as they are computed with: loads and stores of 4- to
64-bit types, saturation and rounding.
"""
