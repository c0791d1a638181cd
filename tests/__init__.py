"""The tests; ``tests.check`` has what they share."""
