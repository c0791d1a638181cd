"""Problems given as dimensions: ``2x3x4``, or several tensors with colons between them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from dnnl.language.errors import BadValue

Sizes = tuple[int, ...]
_MOST = 12

_NAMED = re.compile(r"([^n]*?)_?(?:n(.*))?", re.DOTALL)
_DIMS = re.compile(r"[0-9]+(x[0-9]+)*")


@dataclass(frozen=True)
class Shapes:
    """The dims of one or more tensors, the name of the case, and what joins tensors in prose."""

    tensors: tuple[Sizes, ...]
    name: str = ""
    between: str = " and "

    def with_batch(self, batch: int) -> Shapes:
        """The problem with another first dimension."""
        return replace(self, tensors=tuple((batch, *dims[1:]) for dims in self.tensors))

    @property
    def dims(self) -> Sizes:
        """The dims of the first tensor."""
        return self.tensors[0]

    @property
    def padded(self) -> tuple[Sizes, ...]:
        """The tensors, shorter ones continued with ones to the rank of the first."""
        rank = len(self.dims)
        return tuple(dims + (1,) * (rank - len(dims)) for dims in self.tensors)

    @property
    def result(self) -> Sizes:
        """What the tensors are broadcast to: the largest of each dimension, 0 if one is 0."""
        columns = zip(*self.padded, strict=True)
        return tuple(0 if 0 in column else max(column) for column in columns)

    @property
    def text(self) -> str:
        """The problem as a case writes it."""
        dims = ":".join("x".join(map(str, dims)) for dims in self.tensors)
        return f"{dims}_n{self.name}" if self.name else dims


@dataclass(frozen=True)
class Dims:
    """Problems of ``low`` to ``high`` shapes, which ``between`` joins in a text; ``deeper`` lets
    those behind the first have a dim more than that."""

    low: int = 1
    high: int = 1
    between: str = " and "
    deeper: bool = False

    def parse(self, token: str) -> Shapes:
        """Read a problem; raises BadValue.

        The first ``n`` begins the name, and an underscore before it does not count.
        """
        matched = _NAMED.fullmatch(token)
        assert matched is not None
        body, name = matched[1], matched[2] or ""
        parts = body.split(":")
        if not all(_DIMS.fullmatch(part) for part in parts):
            raise BadValue(f"problem {token!r}: expected sizes as 2x3x4")
        tensors = tuple(tuple(map(int, part.split("x"))) for part in parts)
        if not self.low <= len(tensors) <= self.high:
            count = str(self.low) if self.low == self.high else f"{self.low} or more"
            raise BadValue(f"problem {token!r}: expected {count} tensors, separated by colons")
        most = len(tensors[0]) + self.deeper
        if len(tensors[0]) > _MOST or any(len(dims) > most for dims in tensors):
            rule = f"at most {_MOST} dims, and no tensor has more than the first"
            raise BadValue(f"problem {token!r}: {rule}")
        return Shapes(tensors, name, self.between)

    def from_line(self, text: str) -> str:
        """The problem as a case writes it, out of that of a verbose line; version 2 gave a product
        the sizes of its result as well."""
        return ":".join(text.split(":")[: self.high])
