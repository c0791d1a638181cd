"""Convolutions of a channel or a few by themselves."""
