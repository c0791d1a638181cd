"""Code that the cpu engine has loaded, and the lock over its loading."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod

from dnnl import forks

#: Held by whatever changes the state of this engine; safe to take in the child of a fork.
lock = threading.RLock()
forks.hold(lock)


class Code(ABC):
    """A loaded object: the addresses of the symbols that were asked for, and its bytes of memory.

    The addresses are good as long as this lives. ``Code(code, symbols)`` raises `Error` for bytes
    that are no object of this machine and for symbols that are missing. Every object is apart, so
    that two may define the same names.
    """

    addresses: tuple[int, ...]
    nbytes: int

    @classmethod
    @abstractmethod
    def supported(cls) -> bool:
        """Whether objects can be loaded like this on this system."""

    @abstractmethod
    def __init__(self, code: bytes, symbols: tuple[str, ...]) -> None: ...
