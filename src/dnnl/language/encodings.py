"""The options of cases that say in which buffers a tensor is stored, as data."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from dnnl.language.options import Option, operands
from dnnl.language.values import sizes
from dnnl.language.verbose import OperationLine, Tensor
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc

_FORM = re.compile(r"(csr|coo|packed)?(?:\+(0?\.[0-9]+|[01](?:\.[0-9]*)?))?")
_SPARSITY = 0.9
_MADE: dict[str, Callable[..., MemoryDesc]] = {
    "csr": MemoryDesc.csr, "coo": MemoryDesc.coo, "packed": MemoryDesc.packed,
}  # fmt: skip


@dataclass(frozen=True)
class Sparse:
    """The encoding of one tensor, empty where it is dense, and the share of zeros in it."""

    name: str = ""
    share: str = ""

    def desc(self, dims: tuple[int, ...], data_type: DataType) -> MemoryDesc:
        """The descriptor of a tensor of these dims."""
        return _MADE[self.name](dims, data_type, _stored(prod(dims), self.share))

    def __str__(self) -> str:
        return f"{self.name}+{self.share}" if self.share else self.name


@dataclass(frozen=True)
class Encodings:
    """The encodings of source, weights and destination."""

    parts: tuple[Sparse, ...]

    def __bool__(self) -> bool:
        return any(part.name for part in self.parts)

    def __getitem__(self, number: int) -> Sparse:
        return self.parts[number] if number < len(self.parts) else Sparse()

    def __str__(self) -> str:
        return ":".join(map(str, self.parts)) if self else ""


def _stored(elements: int, share: str) -> int:
    """How many elements are stored of a tensor with that share of zeros."""
    return max(1, int(elements * (1 - float(share or _SPARSITY))))


def _parse(text: str) -> Encodings:
    parts: list[Sparse] = []
    for part in text.split(":"):
        found = _FORM.fullmatch(part)
        if found is None or len(parts) == 3:
            form = "csr, coo or packed[+SPARSITY] for each tensor, with colons between them"
            raise ValueError(f"expected {form}; the sparsity is 0 to 1")
        parts.append(Sparse(found[1] or "", found[2] or ""))
    return Encodings(tuple(parts))


def _told(line: OperationLine) -> str | None:
    """The encodings in a verbose line, which says how many elements are stored."""
    shapes = line.problem.split(":")
    given = [
        _spelled(tensor, dims) for tensor, dims in zip(operands(line)[:2], shapes, strict=False)
    ]
    return ":".join([*given, ""]) if any(given) else None


def _spelled(tensor: Tensor, dims: str) -> str:
    """The shortest share of zeros with which a tensor stores as many elements."""
    if tensor.tag not in _MADE or tensor.format_kind != "sparse":
        return ""
    nnz, elements = int(tensor.numbers.partition("x")[0]), prod(sizes(dims))
    zeros = 1 - (nnz + 0.5) / max(1, elements)  # between two counts, as they are rounded down
    tries = (f"{1 - nnz / max(1, elements):.{digits}f}" for digits in range(1, 9))
    share = next((text for text in tries if _stored(elements, text) == nnz), f"{zeros:.15f}")
    return f"{tensor.tag}+{share if float(share) > 0 else '0.0'}"


ENCODING = Option("encoding", "", _parse, _told, layout=True)


@dataclass(frozen=True)
class Groups:
    """Which dimension of source is grouped, 0 for M and 1 for K, how many groups there are, and
    their sizes or a profile of these: ``balanced`` and ``decode`` are about equal ones, which is
    the default, ``hot`` gives the first one ``share`` percent. What a group has at most is said
    behind them, and not used. Without a ``count`` there are as many groups as weights, or 32."""

    dim: int | None = None
    count: int | None = None
    given: tuple[int, ...] = ()
    text: str = ""
    profile: str = ""
    share: int = 50

    def __bool__(self) -> bool:
        return self.dim is not None

    def __str__(self) -> str:
        return self.text

    def number(self, weights: Sequence[int]) -> int:
        """The number of groups for weights of these dims."""
        return self.count or (weights[0] if len(weights) > 2 else _GROUP_COUNT)

    def sizes(self, total: int, count: int) -> list[int]:
        """The sizes of ``count`` groups, which share ``total`` unless they were given."""
        if self.given:
            return list(self.given)
        first = total * self.share // 100 if self.profile == "hot" and count > 1 else 0
        behind = count - 1 if first else count
        rest = total - first
        shares = [rest // behind + (number < rest % behind) for number in range(behind)]
        return [first, *shares] if first else shares


_GROUP_COUNT = 32
_GROUPS = re.compile(
    r"(?P<dim>[01]|M|K)(?::(?P<count>[1-9][0-9]*))?"
    r"(?::(?:(?P<sizes>[0-9]+(?:\+[0-9]+)*)"
    r"|(?P<profile>balanced|hot|decode)(?:[.:](?P<share>[0-9]+))?))?(?::[0-9]+)?"
)


def _parse_groups(text: str) -> Groups:
    if not text:
        return Groups()
    found = _GROUPS.fullmatch(text)
    if found is None:
        form = (
            "DIM[:COUNT][:SIZE+SIZE...|balanced|hot[.PERCENT]|decode][:MAX], DIM 0 for M, 1 for K"
        )
        raise ValueError(f"expected {form}")
    sizes = tuple(map(int, found["sizes"].split("+"))) if found["sizes"] else ()
    count = int(found["count"]) if found["count"] else len(sizes) or None
    if sizes and len(sizes) != count:
        raise ValueError(f"expected {count} sizes, there are {len(sizes)}")
    profile, share = found["profile"] or "", found["share"]
    if profile == "hot" and share and int(share) > 100:
        raise ValueError("expected a percentage of at most 100")
    dim = int(found["dim"] in ("1", "K"))
    own = int(share) if profile == "hot" and share else Groups.share
    return Groups(dim, count, sizes, text, profile, own)


def _told_groups(line: OperationLine) -> str | None:
    """The groups of a verbose line, which does not say their sizes."""
    if line.source.tag != "grouped":
        return None
    dim, _, count = line.source.numbers.partition("x")
    return f"{dim}:{count}"


GROUPED = Option("grouped", "", _parse_groups, _told_groups, layout=True)
