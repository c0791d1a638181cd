"""Batch, group, layer and RMS normalization."""
