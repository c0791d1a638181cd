"""Replay: which kernels two revisions write differently.

A change that only renames or moves code changes no kernel. ``make replay BASE=REVISION`` writes the
LLVM IR of the same cases at both revisions, for every instruction set and device, and lists the
cases that differ. Nothing is compiled and nothing runs.
"""
