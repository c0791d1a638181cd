"""Frozen values: data types, kinds, format tags, memory descriptors and attributes."""
