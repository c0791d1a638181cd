"""Conversion between stored types of 4 to 64 bits and the types that are computed with: loads,
stores, saturation, rounding."""
