"""Which dot-product kind, tile, block and order of loops a product gets."""
