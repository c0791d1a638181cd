"""A search for wrong results, raw exceptions, crashes and hangs, for as long as one likes.

    python -m tests.fuzz --minutes 10 --seed 1

A case is a line of text: the name of its kind, and what that kind makes of the rest. hypothesis
draws the lines and shrinks those that fail; a process of its own runs them, so that a crash or a
hang is one more outcome. Failures are kept in ``regressions.txt``, which the test suite runs.
"""
