"""Conversions between bytes and floats, and what computes on bytes between them."""
