"""Frozen values that describe tensors and operations: they hold no data and do no work."""
