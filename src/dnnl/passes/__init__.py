"""Rewrites of graphs: each takes one and returns another."""
