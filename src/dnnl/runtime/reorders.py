"""Who moves tensors between memories: a primitive, which is above. The package says where."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module

from dnnl import lazy

_HOMES: list[tuple[str, str]] = []


def provide(module: str, name: str) -> None:
    """Have `run` call a function, whose module is imported at the first call."""
    _HOMES.append((module, name))


def run(src: object, dst: object) -> None:
    """Write the tensor of one memory into another one, and wait for it."""
    _function()(src, dst)


@cache
def _function() -> Callable[[object, object], object]:
    module, name = _HOMES[-1]
    with lazy.IMPORTING:
        function: Callable[[object, object], object] = getattr(import_module(module), name)
    return function
