"""Names and modules that are imported when they are first asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from threading import RLock
from typing import Any

from dnnl import forks
from dnnl.onednn import hint

# A fork must not leave a module half imported.
IMPORTING = RLock()
forks.hold(IMPORTING)


def names(
    package: str, homes: Mapping[str, str], prepare: Callable[[Any], object] = lambda value: value
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package.

    ``homes`` names the module, within the package, that has each name, of which ``prepare`` makes
    what the package has; modules of the package are its attributes as well. A module must not be
    called as a name is: whichever was imported last would be found.
    """

    def find(name: str) -> object:
        found = vars(sys.modules[package])
        if name in homes:
            with IMPORTING:
                value = prepare(getattr(import_module(f"{package}.{homes[name]}"), name))
                found[name] = value
                return value
        # Not under the lock: who imports a module, and so has Python's lock of it, may ask for
        # another.
        if name.isidentifier() and not name.startswith("__") and find_spec(f"{package}.{name}"):
            return import_module(f"{package}.{name}")
        text = f"module {package!r} has no attribute {name!r}{hint(package, name)}"
        raise AttributeError(text, name=name, obj=sys.modules[package])

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return find, listed


class Module:
    """A module that is imported when one of its names is first asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        with IMPORTING:
            return getattr(import_module(self._name), name)
