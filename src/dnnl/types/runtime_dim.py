"""Sizes that only an execution knows, of which something is promised."""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm

from dnnl.errors import InvalidArguments
from dnnl.types.kinds import RUNTIME_DIM
from dnnl.types.symbols import LEAST

MOST = 2**63 - 1


class RuntimeDim(int):
    """A size that only an execution knows, between ``min`` and ``max`` and a multiple of
    ``multiple``.

    It stands where `RUNTIME_DIM` may stand in the dims of a descriptor, and is equal to it. Kernels
    use what is promised: no code for the rest of a vector if rows are a multiple of one. An
    execution with another size raises InvalidArguments::

        width = dnnl.RuntimeDim(min=32, max=2048, multiple=8)
        dnnl.MemoryDesc((dnnl.RUNTIME_DIM, 3, width, width), "f32", "nhwc")
    """

    min: int
    max: int
    multiple: int

    def __new__(cls, min: int = 0, max: int | None = None, multiple: int = 1) -> RuntimeDim:
        made = super().__new__(cls, RUNTIME_DIM)
        most = MOST if max is None else max
        for name, value, least in (("min", min, 0), ("max", most, 0), ("multiple", multiple, 1)):
            if type(value) is not int or value < least:
                rule = f"expected an integer of at least {least}"
                raise InvalidArguments(name, value, rule)
        first, last = -(-min // multiple) * multiple, most // multiple * multiple
        if first > last:
            rule = f"there is no multiple of {multiple} from {min} to it"
            raise InvalidArguments("max", max, rule)
        made.min, made.max, made.multiple = first, last, multiple
        return made

    @property
    def promise(self) -> tuple[int, int, int]:
        """``min``, ``max`` and ``multiple``."""
        return self.min, self.max, self.multiple

    def allows(self, size: int) -> bool:
        """Whether an execution may have this size."""
        return self.min <= size <= self.max and size % self.multiple == 0

    def near(self, size: int) -> int:
        """The size nearest to another one that is allowed, and not 0 or 1 if it can be avoided."""
        steps = max(1, round(size / self.multiple)) * self.multiple
        return min(max(steps, self.min, min(LEAST, self.max)), self.max)

    @property
    def rule(self) -> str:
        """What is promised, for messages."""
        parts = [f"at least {self.min}"] if self.min else []
        parts += [f"at most {self.max}"] if self.max + self.multiple <= MOST else []
        parts += [f"a multiple of {self.multiple}"] if self.multiple > 1 else []
        return " and ".join(parts) or "any size"

    def __repr__(self) -> str:
        given = {"min": self.min or None, "multiple": self.multiple if self.multiple > 1 else None}
        given["max"] = self.max if self.max + self.multiple <= MOST else None
        text = ", ".join(f"{name}={value}" for name, value in given.items() if value is not None)
        return f"RuntimeDim({text})"

    def __reduce__(self) -> tuple[object, ...]:
        return RuntimeDim, self.promise


def promises_of(sizes: Sequence[int]) -> tuple[tuple[int, int, int] | None, ...]:
    """What is promised of each size; empty if nothing is."""
    if not any(isinstance(size, RuntimeDim) for size in sizes):
        return ()
    return tuple(size.promise if isinstance(size, RuntimeDim) else None for size in sizes)


def joined(first: int, second: int) -> int:
    """The promises of two sizes that are equal in each execution."""
    given = [size for size in (first, second) if isinstance(size, RuntimeDim)]
    if len(given) < 2:
        return given[0] if given else first
    a, b = given
    least, most, multiple = max(a.min, b.min), min(a.max, b.max), lcm(a.multiple, b.multiple)
    if -(-least // multiple) * multiple > most:
        return RUNTIME_DIM  # they are no one size
    return RuntimeDim(least, most, multiple)
