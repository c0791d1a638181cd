"""The problem of an attention and how it is cut: blocks of query rows, and of keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from dnnl.codegen.isa import Isa
from dnnl.codegen.product.brgemm import max_rows
from dnnl.kernels.shared.scratchpad import Scratchpad
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.size import is_known

SCORES_BYTES = 64 * 2**10
"""The bytes of a block of scores."""
_MANY = 32
"""Registers that suffice for the widest blocks."""
_WIDEST = 4
"""The vectors of query rows of a block where there are enough registers, else half as many."""


@dataclass(frozen=True)
class AttentionConf:
    """dst[n, h, l] = softmax(scale * query[n, h, l] key[n, g]^T + mask[n, h, l]) value[n, g], where
    head g of the keys serves ``groups`` heads in a row.

    ``masking`` is none, causal, or causal_last: query l takes the first l + 1 keys, or as many more
    as there are more keys than queries. ``logsum`` is the logarithm of the sum of a row. A row
    without keys is 0, or NaN if that is ``undefined``.
    """

    query: MemoryDesc
    key: MemoryDesc
    value: MemoryDesc
    mask: MemoryDesc | None
    dst: MemoryDesc
    logsum: MemoryDesc | None
    masking: str
    scale: float
    undefined: bool

    @property
    def tensors(self) -> dict[int, MemoryDesc]:
        """The tensors that there are, by argument."""
        given = {
            Arg.SRC_0: self.query, Arg.SRC_1: self.key, Arg.SRC_2: self.value,
            Arg.SRC_3: self.mask, Arg.DST: self.dst, Arg.DST_1: self.logsum,
        }  # fmt: skip
        return {int(argument): own for argument, own in given.items() if own is not None}

    @property
    def groups(self) -> int:
        """The heads of queries that one of the keys serves."""
        return self.query.dims[1] // self.key.dims[1]

    @property
    def rows(self) -> int:
        """The query rows of a head."""
        return self.query.dims[2]

    @property
    def keys(self) -> int:
        """The keys of a head."""
        return self.key.dims[2]

    @property
    def depth(self) -> int:
        """The numbers that queries and keys have."""
        return self.query.dims[3]

    @property
    def width(self) -> int:
        """The numbers that values have."""
        return self.value.dims[3]

    @property
    def offset(self) -> int:
        """How many keys more than its number and one a query takes."""
        return self.keys - self.rows if self.masking == "causal_last" else 0


@dataclass(frozen=True)
class GradientConf(AttentionConf):
    """The gradients by query, key and value of an attention whose ``logsum`` is there.

    Blocks of query rows have ``vectors`` vectors. The scratchpad has, for whole blocks, the
    gradients of queries in f32 (``sums``) and two numbers of each row (``numbers``).
    """

    diff_dst: MemoryDesc
    diff_query: MemoryDesc
    diff_key: MemoryDesc
    diff_value: MemoryDesc
    vectors: int
    sums: MemoryDesc
    numbers: MemoryDesc
    scratchpad: int

    @staticmethod
    def of(conf: AttentionConf, gradients: Sequence[MemoryDesc], isa: Isa) -> GradientConf:
        """The gradients of ``conf``: of dst, and by query, key and value."""
        vectors, scratchpad = widest(isa), Scratchpad()
        if is_known(conf.rows):
            vectors = max(1, min(vectors, -(-conf.rows // isa.lanes)))
        given = _gradient_fields(conf, gradients, isa, vectors, isa.lanes, scratchpad)
        return GradientConf(**given, scratchpad=scratchpad.size)

    @property
    def tensors(self) -> dict[int, MemoryDesc]:
        """The tensors that there are, by argument."""
        return super().tensors | {
            int(Arg.DIFF_DST): self.diff_dst,
            int(Arg.DIFF_SRC_0): self.diff_query,
            int(Arg.DIFF_SRC_1): self.diff_key,
            int(Arg.DIFF_SRC_2): self.diff_value,
        }


def _gradient_fields(
    conf: AttentionConf,
    gradients: Sequence[MemoryDesc],
    isa: Isa,
    vectors: int,
    columns: int,
    scratchpad: Scratchpad,
) -> dict[str, Any]:
    """The fields of a `GradientConf` but for the scratchpad; sums have multiples of ``columns``."""
    rows, (batch, heads, _, depth) = _rounded(conf.rows, vectors * isa.lanes), conf.query.dims
    dims = batch, heads, rows, _rounded(depth, columns)
    _, sums = scratchpad.take(MemoryDesc(dims, "f32"))
    _, numbers = scratchpad.take(MemoryDesc((batch, heads, 2, rows), "f32"))
    names = "diff_dst", "diff_query", "diff_key", "diff_value"
    return {own.name: getattr(conf, own.name) for own in fields(conf)} | {
        **dict(zip(names, gradients, strict=True)),
        "vectors": vectors,
        "sums": sums,
        "numbers": numbers,
    }


def _rounded(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


GROUP, K_BLOCK = 2, 32
"""The elements of a K group of bf16, and of a K block of the matrix unit."""


@dataclass(frozen=True)
class UnitConf(AttentionConf):
    """An attention of bf16 on a matrix unit, with packed keys [N, G, keys, elements] and values
    [N, G, pairs of keys, pairs] in the scratchpad."""

    packed_keys: MemoryDesc
    packed_values: MemoryDesc
    scratchpad: int

    @staticmethod
    def of(conf: AttentionConf) -> UnitConf:
        """``conf`` with whole K blocks of keys and elements."""
        batch, heads, keys, depth = conf.key.dims
        scratchpad = Scratchpad()
        keys, depth, width = (_rounded(size, K_BLOCK) for size in (keys, depth, conf.width))
        dims = (batch, heads, keys, depth), (batch, heads, keys // GROUP, width * GROUP)
        _, packed_keys = scratchpad.take(MemoryDesc(dims[0], "bf16"))
        _, packed_values = scratchpad.take(MemoryDesc(dims[1], "bf16"))
        given = {own.name: getattr(conf, own.name) for own in fields(conf)}
        return UnitConf(
            **given,
            packed_keys=packed_keys,
            packed_values=packed_values,
            scratchpad=scratchpad.size,
        )


@dataclass(frozen=True)
class UnitGradientConf(GradientConf):
    """The gradients of an attention of bf16 on a matrix unit, with packed keys, pairs of keys and
    packed values in the scratchpad."""

    packed_keys: MemoryDesc
    paired_keys: MemoryDesc
    packed_values: MemoryDesc

    @staticmethod
    def of(conf: AttentionConf, gradients: Sequence[MemoryDesc], isa: Isa) -> UnitGradientConf:
        """The gradients of ``conf``: of dst, and by query, key and value."""
        scratchpad, vectors = Scratchpad(), K_BLOCK // isa.lanes
        given = _gradient_fields(conf, gradients, isa, vectors, K_BLOCK, scratchpad)
        batch, heads, *sizes = conf.key.dims
        keys, depth, width = (_rounded(size, K_BLOCK) for size in (*sizes, conf.width))
        dims = (keys, depth), (keys // GROUP, depth * GROUP), (keys, width)
        packed = [scratchpad.take(MemoryDesc((batch, heads, *own), "bf16"))[1] for own in dims]
        return UnitGradientConf(
            **given,
            packed_keys=packed[0],
            paired_keys=packed[1],
            packed_values=packed[2],
            scratchpad=scratchpad.size,
        )


def widest(isa: Isa) -> int:
    """The vectors of query rows of a block, unless there are fewer rows."""
    return _WIDEST if isa.registers >= _MANY else _WIDEST // 2


@dataclass(frozen=True)
class RowBlocks:
    """The query rows of a head, in ``count`` blocks of ``vectors`` vectors of rows, of which the
    first ``longer`` ones have one more. The last one may have fewer where only an execution knows
    the rows: as few as one of ``sizes``, the largest first."""

    count: int
    vectors: int
    longer: int
    sizes: tuple[int, ...]

    @staticmethod
    def of(rows: int, isa: Isa) -> RowBlocks:
        """As few blocks as registers allow, as equal as they can be."""
        vectors, most = -(-rows // isa.lanes), widest(isa)
        count = -(-vectors // most)
        if not is_known(rows):
            return RowBlocks(count, most, 0, halves(most))
        least, longer = divmod(vectors, max(1, count))
        return RowBlocks(count, least, longer, (least + 1, least) if longer else (least,))

    @staticmethod
    def of_vectors(rows: int, isa: Isa, vectors: int) -> RowBlocks:
        """Blocks of so many vectors."""
        return RowBlocks(-(-rows // (vectors * isa.lanes)), vectors, 0, (vectors,))


def halves(vectors: int) -> tuple[int, ...]:
    """A power of two and all smaller ones, the largest first."""
    return tuple(vectors >> n for n in range(vectors.bit_length()))


def tile_height(keys: int, isa: Isa, vectors: int) -> int:
    """The keys of a tile of scores: those that leave the fewest to compute twice."""
    most = max_rows(isa, vectors)
    if not is_known(keys):
        return most
    if keys <= most:
        return max(1, keys)
    return min(range(most, most // 2, -1), key=lambda height: -keys % height)


def keys_of_block(
    keys: int, isa: Isa, vectors: int, height: int, nbytes: int = SCORES_BYTES
) -> int:
    """The keys of a block of scores of so many bytes, a multiple of the height of its tiles."""
    most = max(1, nbytes // (4 * vectors * isa.lanes * height))
    if is_known(keys):
        blocks = -(-keys // (most * height)) or 1
        most = max(1, min(most, -(-keys // (blocks * height))))
    return most * height
