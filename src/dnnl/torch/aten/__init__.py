"""The operators of ATen, by families: how each is written as nodes of a graph."""
