"""The terms of a product: its problem, types, blocks, tiles of pixels and their borders."""
