"""Convolution as a product over taps and channels."""
