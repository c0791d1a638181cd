"""The loops around register tiles, with software prefetch."""
