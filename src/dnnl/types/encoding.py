"""How tensors without strides are stored, in one buffer or several.

    csr      values[nnz], column of each [nnz], where each row begins [rows + 1]
    coo      values[nnz], row of each [nnz], column of each [nnz]; sorted by rows
    packed   values[nnz + 512], where those of each stretch of a panel begin [stretches + 1],
             a bit for each element of the panels; without panels, a request for such weights
    grouped  values of all groups behind each other, where each group ends [groups]
    winograd weights of a convolution as Winograd's algorithm multiplies them

An encoding is the field of a `MemoryDesc`, which has no strides then, and says what its buffers
are. Indices are s32, places of packed values s64.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from dnnl.errors import InvalidArguments
from dnnl.types.cook_toom import POINTS, TAPS
from dnnl.types.dtype import DataType, DataTypeLike
from dnnl.types.kinds import RUNTIME_DIM, FormatKind, coerce
from dnnl.types.layout_input import read_int

_MOST = 2**31 - 1

STRETCH = 32
"""K groups of a panel for each stored offset into the packed values."""

MAX_GROUP = 512
"""Upper bound of the elements of a K group in all columns, and the padding behind the last packed
value."""


class BufferShape(NamedTuple):
    """One buffer of an encoding: a dense tensor. ``tag`` is None for one that is row-major."""

    dims: tuple[int, ...]
    data_type: DataType
    tag: str | None = None


@dataclass(frozen=True)
class Encoding(ABC):
    """How a matrix is stored in several buffers, of which the first has the values."""

    name = ""
    format_kind = FormatKind.sparse

    @abstractmethod
    def check(self, dims: tuple[int, ...]) -> None:
        """Raise InvalidArguments unless a tensor of these dims can be encoded so."""

    @abstractmethod
    def shapes(self, dims: tuple[int, ...], data_type: DataType) -> tuple[BufferShape, ...]:
        """The buffers of a tensor."""

    def permuted(self, perm: tuple[int, ...]) -> Encoding | None:
        """How the same buffers hold the tensor whose dimension ``perm[d]`` is dimension ``d`` of
        this one; None where no encoding says it."""
        return None

    @property
    @abstractmethod
    def details(self) -> tuple[int, ...]:
        """The numbers that verbose lines add to the name."""


@dataclass(frozen=True)
class _Sparse(Encoding):
    """A matrix of ``nnz`` stored elements; the others are zero."""

    nnz: int

    def __post_init__(self) -> None:
        nnz = read_int("nnz", self.nnz)
        if not 0 <= nnz <= _MOST:
            rule = f"expected how many elements are stored, 0 to {_MOST} as indices are s32"
            raise InvalidArguments("nnz", nnz, rule)
        object.__setattr__(self, "nnz", nnz)

    def check(self, dims: tuple[int, ...]) -> None:
        """Matrices whose indices fit s32."""
        _check_matrix(self.name, dims)
        if max(dims) > _MOST:
            raise InvalidArguments("dims", dims, f"indices are s32: at most {_MOST}")

    @property
    def details(self) -> tuple[int, ...]:
        """How many elements are stored."""
        return (self.nnz,)


@dataclass(frozen=True)
class Csr(_Sparse):
    """Rows behind each other: buffers values, their columns, and rows + 1 pointers, the first of
    which is 0, each where a row begins and the one before ends."""

    name = "csr"

    def shapes(self, dims: tuple[int, ...], data_type: DataType) -> tuple[BufferShape, ...]:
        """Values, columns, pointers."""
        index = BufferShape((self.nnz,), DataType.s32)
        pointers = BufferShape((dims[0] + 1,), DataType.s32)
        return BufferShape((self.nnz,), data_type), index, pointers


@dataclass(frozen=True)
class Coo(_Sparse):
    """Buffers values, their rows and their columns, sorted by rows."""

    name = "coo"

    def shapes(self, dims: tuple[int, ...], data_type: DataType) -> tuple[BufferShape, ...]:
        """Values, rows, columns."""
        index = BufferShape((self.nnz,), DataType.s32)
        return BufferShape((self.nnz,), data_type), index, index


@dataclass(frozen=True)
class Packed(_Sparse):
    """Weights in panels of ``columns``, without their zeros.

    A K group has ``group`` neighbours of each column, as in the dense layout ``tag``. The nonzero
    values of `STRETCH` K groups are contiguous. Buffers: values, padded so that a whole K group may
    be read at the end; the offset at which each stretch begins, and the last one ends; one bit for
    each element, every panel starting at a byte.

    Without columns the layout is open, like ``any``: a primitive chooses them.
    """

    columns: int = 0
    group: int = 1
    name = "packed"

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("columns", "group"):
            object.__setattr__(self, field, read_int(field, getattr(self, field)))
        width = self.columns * self.group
        if self.columns < 0 or self.group < 1 or width % 8 or width > MAX_GROUP:
            rule = f"columns * group is a multiple of 8 up to {MAX_GROUP}, whole bytes of bits"
            raise InvalidArguments("columns", (self.columns, self.group), rule, "0 is a request")

    @property
    def details(self) -> tuple[int, ...]:
        """The number of stored elements, columns of a panel, K group."""
        return (self.nnz, self.columns, self.group) if self.columns else (self.nnz,)

    @property
    def tag(self) -> str:
        """The layout of the panels as dense weights."""
        depth = f"A{self.columns}b{self.group}a" if self.group > 1 else f"a{self.columns}b"
        return f"B{depth}"

    def panels(self, dims: tuple[int, ...]) -> tuple[int, int, int]:
        """The number of panels, of K groups in a panel, and of stretches in a panel."""
        groups = -(-dims[0] // self.group)
        return -(-dims[1] // self.columns), groups, -(-groups // STRETCH)

    def shapes(self, dims: tuple[int, ...], data_type: DataType) -> tuple[BufferShape, ...]:
        """Values, their places, bits; of a request none that are known."""
        if not self.columns:
            return ()
        panels, groups, stretches = self.panels(dims)
        return (
            BufferShape((self.nnz + MAX_GROUP,), data_type),
            BufferShape((panels * stretches + 1,), DataType.s64),
            BufferShape((panels * groups * self.columns * self.group // 8,), DataType.u8),
        )


@dataclass(frozen=True)
class Grouped(Encoding):
    """Matrices that differ in one size, ``variable_dim_idx``, behind each other along it.

    The dims of the tensor hold the total there. Buffers: the values, row-major for 0 and
    column-major for 1, so that every group is one stretch of memory, and ``groups`` offsets at
    which each group ends. A group may be empty.
    """

    variable_dim_idx: int
    groups: int
    name = "grouped"

    def __post_init__(self) -> None:
        dim, groups = (
            read_int(field, getattr(self, field)) for field in ("variable_dim_idx", "groups")
        )
        if dim not in (0, 1):
            rule = "expected 0 (groups of rows) or 1 (groups of columns)"
            raise InvalidArguments("variable_dim_idx", dim, rule)
        if not 1 <= groups <= _MOST:
            raise InvalidArguments("group_count", groups, "expected at least one group")
        object.__setattr__(self, "variable_dim_idx", dim)
        object.__setattr__(self, "groups", groups)

    def check(self, dims: tuple[int, ...]) -> None:
        """Matrices whose offsets fit s32."""
        _check_matrix(self.name, dims)
        if dims[self.variable_dim_idx] > _MOST:
            raise InvalidArguments("dims", dims, f"offsets are s32: at most {_MOST}")

    def shapes(self, dims: tuple[int, ...], data_type: DataType) -> tuple[BufferShape, ...]:
        """Values, offsets."""
        tag = "ba" if self.variable_dim_idx else None
        return BufferShape(dims, data_type, tag), BufferShape((self.groups,), DataType.s32)

    @property
    def details(self) -> tuple[int, ...]:
        """The variable dimension and the number of groups."""
        return self.variable_dim_idx, self.groups


@dataclass(frozen=True)
class Winograd(Encoding):
    """Weights ([G,] OC/G, IC/G, 3, 3) of a convolution, transformed for tiles of ``tile`` x
    ``tile`` results (`cook_toom`).

    The only buffer has dims (G, (tile + 2)^2, IC/G, OC/G): a matrix for each place in a tile, in
    panels of ``columns`` of its columns. It is f32, whatever floats the taps are. These are
    ``rotated`` before, as in a transposed convolution, and channels are ``exchanged`` where outputs
    are summed, as in gradients of data.
    """

    tile: int
    columns: int
    rotated: bool = False
    exchanged: bool = False
    name = "winograd"
    format_kind = FormatKind.opaque

    def __post_init__(self) -> None:
        for field in ("tile", "columns"):
            object.__setattr__(self, field, read_int(field, getattr(self, field)))
        for field in ("rotated", "exchanged"):
            given = getattr(self, field)
            if not isinstance(given, int) or given not in (0, 1):
                raise InvalidArguments(field, given, "expected True or False")
            object.__setattr__(self, field, bool(given))
        if self.tile not in POINTS:
            rule = "expected 2 for F(2x2, 3x3) or 4 for F(4x4, 3x3)"
            raise InvalidArguments("tile", self.tile, rule)
        if self.columns < 1:
            rule = "the columns of a panel must be at least 1, for example 32"
            raise InvalidArguments("columns", self.columns, rule)

    def check(self, dims: tuple[int, ...]) -> None:
        """Weights of 3x3 taps, with or without groups."""
        if len(dims) not in (4, 5) or dims[-2:] != (TAPS, TAPS) or RUNTIME_DIM in dims:
            rule = f"the encoding {self.name} is for weights ([G,] OC, IC, 3, 3) of known size"
            raise InvalidArguments("dims", dims, rule)

    def shapes(self, dims: tuple[int, ...], data_type: DataType) -> tuple[BufferShape, ...]:
        """The matrices."""
        places = (self.tile + TAPS - 1) ** 2
        groups, outputs, channels = dims[:3] if len(dims) == 5 else (1, *dims[:2])
        rows, columns = (outputs, channels) if self.exchanged else (channels, outputs)
        tag = f"abDc{self.columns}d" if self.columns > 1 else "abdc"
        return (BufferShape((groups, places, rows, columns), DataType.f32, tag),)

    @property
    def details(self) -> tuple[int, ...]:
        """The size of a tile, the columns of a panel, and what was done before if anything was."""
        changes = (int(self.rotated), int(self.exchanged))
        return (self.tile, self.columns, *(changes if any(changes) else ()))

    def permuted(self, perm: tuple[int, ...]) -> Winograd | None:
        """Channels may be exchanged."""
        *groups, outputs, channels, h, w = perm
        behind = len(groups)
        if groups != [*range(behind)] or (h, w) != (behind + 2, behind + 3):
            return None
        return self if outputs < channels else replace(self, exchanged=not self.exchanged)


TRANSFORMED = (DataType.f32, DataType.bf16, DataType.f16)
"""The types of the taps that Winograd's algorithm transforms."""

SPARSE: Mapping[object, Callable[[int], Encoding]] = MappingProxyType({"csr": Csr, "coo": Coo})
"""The encodings that a user may write a sparse matrix in, by name."""


def check_index_type(argument: str, data_type: DataTypeLike) -> None:
    """Raise unless indices may have this type."""
    if coerce(DataType, data_type, argument) is not DataType.s32:
        rule = "indices, pointers and offsets are s32"
        raise InvalidArguments(argument, str(data_type), rule, "astype(numpy.int32)")


def check_values(encoding: Encoding, data_type: DataType) -> None:
    """Raise unless the values of a tensor with this encoding may have the type."""
    if data_type is DataType.undef or data_type.bits < 8:
        rule = f"the values of a tensor in the encoding {encoding.name} are whole bytes"
        raise InvalidArguments("data_type", str(data_type), rule)
    if isinstance(encoding, Winograd) and data_type not in TRANSFORMED:
        rule = "Winograd's algorithm transforms weights in f32, bf16 and f16"
        raise InvalidArguments("data_type", str(data_type), rule)


def _check_matrix(name: str, dims: tuple[int, ...]) -> None:
    if len(dims) != 2 or RUNTIME_DIM in dims:
        rule = f"a tensor in the encoding {name} is a matrix of known size"
        raise InvalidArguments("dims", dims, rule)
