"""Recurrent networks: products of all steps, then cells step by step."""
