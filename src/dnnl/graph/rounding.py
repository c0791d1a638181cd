"""How often the values of a graph are rounded to types smaller than f32."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rounding:
    """How often a value is rounded between an input to an output: ``depth`` steps one after
    the other read factors or write results of types whose largest epsilon is ``eps``."""

    eps: float
    depth: int
