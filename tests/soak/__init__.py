"""A long run that watches what must not grow: ``python -m tests.soak --minutes 10``."""
