"""Winograd's convolution: transforms of tiles around one batched product."""
