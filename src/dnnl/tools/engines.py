"""Engines by their names on the command line: ``cpu``, ``sycl:1``, ``gpu``."""

from __future__ import annotations

from collections.abc import Iterator

from dnnl.errors import InvalidArguments
from dnnl.language.values import integer
from dnnl.runtime.engine import Engine, engine_kinds, missing

_OPTION = "--engine"
_GPU = "gpu"
"""What benchdnn calls a device: here the GPUs among the engines of all kinds."""


def checked(name: str) -> str:
    """``KIND`` or ``KIND:INDEX``, whether there is such an engine or not; raises ValueError."""
    kind, colon, index = name.partition(":")
    known = (*engine_kinds(), _GPU)
    if kind not in known:
        raise ValueError(f"expected {', '.join(known)}, or one of these with :INDEX")
    return f"{kind}:{integer(index)}" if colon else kind


def named(name: str) -> Engine:
    """The engine of a name; InvalidArguments says what to install where there is none."""
    try:
        kind, _, text = checked(name).partition(":")
        index = int(text or 0)
        return _gpu(index) if kind == _GPU else Engine(kind, index)
    except InvalidArguments as error:
        raise InvalidArguments(_OPTION, name, error.rule, error.hint) from None
    except ValueError as error:
        raise InvalidArguments(_OPTION, name, str(error)) from None


def all_engines() -> Iterator[Engine]:
    """Every engine of every kind."""
    for kind in engine_kinds():
        yield from (Engine(kind, index) for index in range(Engine.count(kind)))


def spelled(engine: Engine) -> str:
    """The name with which an engine can be asked for."""
    return f"{engine.kind}:{engine.index}"


def _gpu(index: int) -> Engine:
    engines = list(all_engines())
    found = [engine for engine in engines if _GPU in engine.features.flags]
    if index < len(found):
        return found[index]
    there = ", ".join(spelled(engine) for engine in engines)
    hints = [hint for kind in engine_kinds() if (hint := missing(kind))]
    rule = f"{len(found) or 'none'} of the engines are GPUs; there are {there}"
    raise InvalidArguments("index", index, rule, "; ".join(hints))
