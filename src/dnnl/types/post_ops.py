"""Post-ops: what a primitive does to each result, in f32, before it stores it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import overload

from dnnl.errors import InvalidArguments
from dnnl.onednn import Property
from dnnl.types import algorithms
from dnnl.types.arg import MAX_POST_OPS, Arg
from dnnl.types.dtype import DataType, DataTypeLike
from dnnl.types.expression import Expression, Function
from dnnl.types.kinds import Alg, FormatKind, coerce, float_text, nearest
from dnnl.types.layout_input import read_float, read_int
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.scalar import traced

MAX_OPERANDS = 15
"""The argument ids from SRC_1 up to DST that operands of one post-op can have."""
MAX_MASK = 2**12 - 1
"""One bit for each of the dimensions that a tensor can have."""

Operands = tuple[tuple[int, MemoryDesc], ...]


@dataclass(frozen=True, slots=True)
class PostOp:
    """Base of the entries; ``str`` of an entry is its part of a verbose line."""

    @property
    def operands(self) -> Operands:
        """The tensors that the entry reads, each with its argument id.

        Entry ``i`` is executed with them as ``Arg.post_op(i) | id``.
        """
        return ()

    @property
    def expression(self) -> Expression | None:
        """What becomes of the value, as a function of it and of the operands; None where that is
        no function of them alone."""
        return None

    def mapped(self, change: Callable[[MemoryDesc], MemoryDesc]) -> PostOp:
        """The entry with a change made to the descriptor of each operand."""
        return self


@dataclass(frozen=True, slots=True)
class PostOpSum(PostOp):
    """Add ``scale * (dst - zero_point)``, with dst as it was before the execution.

    ``data_type`` reads dst as another type of the same size.
    """

    scale: float = 1.0
    zero_point: int = 0
    data_type: DataType | None = None

    def __str__(self) -> str:
        text = "sum"
        if (self.scale, self.zero_point, self.data_type) != (1.0, 0, None):
            text += f":{float_text(self.scale)}"
        if (self.zero_point, self.data_type) != (0, None):
            text += f":{self.zero_point}"
        return text if self.data_type is None else f"{text}:{self.data_type}"


@dataclass(frozen=True, slots=True)
class PostOpEltwise(PostOp):
    """Apply an elementary function."""

    alg: Alg
    alpha: float = 0.0
    beta: float = 0.0

    @property
    def expression(self) -> Expression:
        """The algorithm."""
        return algorithms.eltwise(self.alg, self.alpha, self.beta)

    def __str__(self) -> str:
        text = str(self.alg)
        if self.alpha or self.beta:
            text += f":{float_text(self.alpha)}"
        return f"{text}:{float_text(self.beta)}" if self.beta else text


@dataclass(frozen=True, slots=True)
class PostOpBinary(PostOp):
    """Combine with a tensor whose every dimension is 1 or that of dst.

    ``src2_desc`` is the condition of ``binary_select``: the result where it is not 0, src1 else.
    """

    alg: Alg
    src1_desc: MemoryDesc
    src2_desc: MemoryDesc | None = None

    @property
    def expression(self) -> Expression:
        """The algorithm, of the value first."""
        return algorithms.binary(self.alg)

    @property
    def mask(self) -> int:
        """The dimensions along which src1 varies, a bit for each."""
        return sum(1 << d for d, size in enumerate(self.src1_desc.dims) if size != 1)

    @property
    def operands(self) -> Operands:
        """The second operand and, for ``binary_select``, the condition."""
        first = (int(Arg.SRC_1), self.src1_desc)
        return (first,) if self.src2_desc is None else (first, (int(Arg.SRC_2), self.src2_desc))

    def mapped(self, change: Callable[[MemoryDesc], MemoryDesc]) -> PostOpBinary:
        """The entry with a change made to the descriptor of each operand."""
        condition = self.src2_desc
        return replace(
            self,
            src1_desc=change(self.src1_desc),
            src2_desc=None if condition is None else change(condition),
        )

    def __str__(self) -> str:
        texts = [str(self.src1_desc.data_type), str(self.mask)]
        if self.src1_desc.format_kind is FormatKind.any:
            texts.append("any")
        elif self.mask:
            _, _, _, tag, strides, *_ = str(self.src1_desc).split(":")
            texts += [tag, strides] if strides else [tag]
        # What follows a colon there is said of the condition.
        return f"{self.alg}:{(':' if self.src2_desc is None else '.').join(texts)}"


@dataclass(frozen=True, slots=True)
class PostOpPrelu(PostOp):
    """Multiply negative values with weights, f32 and plain, that vary along ``mask``.

    Execution argument ``Arg.post_op(i) | Arg.WEIGHTS``.
    """

    mask: int

    @property
    def expression(self) -> Expression:
        """The product with the weight where the value is not positive."""
        return algorithms.PRELU

    def __str__(self) -> str:
        return f"prelu:{self.mask}"


@dataclass(frozen=True, slots=True)
class PostOpDepthwise(PostOp):
    """Follow a 1x1 convolution with a depthwise one, square in kernel, stride and padding."""

    weights_dt: DataType
    bias_dt: DataType
    dst_dt: DataType
    kernel: int
    stride: int
    padding_l: int

    def __str__(self) -> str:
        text = f"dw:k{self.kernel}s{self.stride}p{self.padding_l}"
        plain = self.weights_dt is not DataType.s8 and self.dst_dt is DataType.f32
        return text if plain else f"{text}:{self.dst_dt}"


@dataclass(frozen=True, slots=True)
class PostOpFunction(PostOp):
    """Apply a traced function of the value and one number of each operand.

    Every dimension of an operand is 1 or that of dst. Entries are equal if they compute the same
    of equal operands, whatever the functions were called.
    """

    function: Function
    operand_descs: tuple[MemoryDesc, ...] = ()

    @property
    def expression(self) -> Expression:
        """What was traced."""
        return self.function.expression

    @property
    def operands(self) -> Operands:
        """The operands, with ids from ``Arg.SRC_1`` on."""
        return tuple((Arg.SRC_1 + j, desc) for j, desc in enumerate(self.operand_descs))

    def mapped(self, change: Callable[[MemoryDesc], MemoryDesc]) -> PostOpFunction:
        """The entry with a change made to the descriptor of each operand."""
        return replace(self, operand_descs=tuple(map(change, self.operand_descs)))

    def __str__(self) -> str:
        types = [str(desc.data_type) for desc in self.operand_descs]
        return ":".join(["function", str(self.function), *types])


class PostOps(Property, Sequence[PostOp]):
    """The post-ops of an attribute, applied in order; at most 32.

    Every ``append_*`` returns the index of the new entry, for ``Arg.post_op(index)``.
    """

    def __init__(self, entries: Iterable[PostOp] = ()) -> None:
        self._entries: list[PostOp] = []
        if not isinstance(entries, Iterable):
            raise InvalidArguments("entries", entries, "expected a sequence of post-ops")
        for entry in entries:
            self.append(entry)

    def append(self, entry: PostOp) -> int:
        """Append an entry that is already made."""
        if not isinstance(entry, PostOp):
            raise InvalidArguments("entry", entry, "expected a post-op", "use append_eltwise, ...")
        if len(self._entries) == MAX_POST_OPS:
            raise InvalidArguments("post_ops", str(entry), f"at most {MAX_POST_OPS} post-ops")
        self._entries.append(entry)
        return len(self._entries) - 1

    def append_sum(
        self, scale: float = 1.0, zero_point: int = 0, data_type: DataTypeLike | None = None
    ) -> int:
        """Add ``scale * (dst - zero_point)``; ``data_type`` reads dst as that type."""
        dtype = None if data_type is None else coerce(DataType, data_type, "data_type")
        if dtype is DataType.undef:
            dtype = None
        return self.append(
            PostOpSum(read_float("scale", scale), read_int("zero_point", zero_point), dtype)
        )

    def append_eltwise(self, alg: Alg | str, alpha: float = 0.0, beta: float = 0.0) -> int:
        """Apply an elementary function; its ``alpha`` and ``beta`` are those of EltwiseDesc."""
        kind = _read_function(alg, "eltwise")
        a, b = read_float("alpha", alpha), read_float("beta", beta)
        if "clip" in kind.name and not b >= a:
            raise InvalidArguments("beta", b, f"{kind} needs beta >= alpha = {float_text(a)}")
        return self.append(PostOpEltwise(kind, a, b))

    def append_binary(
        self, alg: Alg | str, src1_desc: MemoryDesc, src2_desc: MemoryDesc | None = None
    ) -> int:
        """Combine with a tensor; ``src2_desc``, of s8, is for ``binary_select`` only."""
        kind = _read_function(alg, "binary")
        _check_operand("src1_desc", src1_desc)
        if (kind is Alg.binary_select) != (src2_desc is not None):
            rule = "binary_select takes a src2_desc, the other functions take none"
            raise InvalidArguments("src2_desc", src2_desc, rule)
        if src2_desc is not None:
            _check_operand("src2_desc", src2_desc)
            if src2_desc.data_type is not DataType.s8:
                raise InvalidArguments("src2_desc", str(src2_desc), "a condition is of type s8")
        return self.append(PostOpBinary(kind, src1_desc, src2_desc))

    def append_prelu(self, mask: int) -> int:
        """Multiply negative values with weights that vary along the dimensions of ``mask``."""
        return self.append(PostOpPrelu(read_mask(mask)))

    def append_depthwise(
        self,
        weights_dt: DataTypeLike,
        bias_dt: DataTypeLike,
        dst_dt: DataTypeLike,
        kernel: int,
        stride: int,
        padding_l: int,
    ) -> int:
        """Follow a 1x1 convolution with a depthwise one; ``bias_dt`` "undef" means no bias."""
        sizes = [
            read_int(name, value)
            for name, value in (("kernel", kernel), ("stride", stride), ("padding_l", padding_l))
        ]
        if sizes[0] < 1 or sizes[1] < 1:
            name, value = ("kernel", sizes[0]) if sizes[0] < 1 else ("stride", sizes[1])
            raise InvalidArguments(name, value, "must be at least 1")
        if not 0 <= sizes[2] < sizes[0]:
            rule = f"must be at least 0 and less than kernel = {sizes[0]}"
            raise InvalidArguments("padding_l", sizes[2], rule)
        types = [
            coerce(DataType, value, name)
            for name, value in (
                ("weights_dt", weights_dt),
                ("bias_dt", bias_dt),
                ("dst_dt", dst_dt),
            )
        ]
        for name, dtype in (("weights_dt", types[0]), ("dst_dt", types[2])):
            if dtype is DataType.undef:
                raise InvalidArguments(name, "undef", "only the bias may be absent")
        return self.append(PostOpDepthwise(types[0], types[1], types[2], *sizes))

    def append_function(self, fn: Callable[..., object], *operand_descs: MemoryDesc) -> int:
        """Apply a Python function of the value and of one element of each operand.

        ``fn`` is called once, here, with a traced scalar for each, on which operators and the
        functions of `dnnl.math` work, and what it computes becomes part of the kernel. Every
        dimension of an operand is 1 or that of dst; operand ``j`` of entry ``i`` is the execution
        argument ``Arg.post_op(i) | (Arg.SRC_1 + j)``.
        """
        if len(operand_descs) > MAX_OPERANDS:
            rule = f"at most {MAX_OPERANDS} operands"
            raise InvalidArguments("operand_descs", len(operand_descs), rule)
        for desc in operand_descs:
            _check_operand("operand_descs", desc)
        return self.append(PostOpFunction(traced(fn, 1 + len(operand_descs)), operand_descs))

    @overload
    def __getitem__(self, index: int) -> PostOp: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[PostOp]: ...
    def __getitem__(self, index: int | slice) -> PostOp | Sequence[PostOp]:
        return self._entries[index]

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[PostOp]:
        return iter(self._entries)

    def __eq__(self, other: object) -> bool:
        return self._entries == other._entries if isinstance(other, PostOps) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"PostOps({self._entries!r})"

    def __str__(self) -> str:
        return "+".join(map(str, self._entries))


def _read_function(alg: Alg | str, family: str) -> Alg:
    """Return a function of one family, ``eltwise`` or ``binary``, given as a member or its name."""
    name = str(alg)
    known = [alg.name for alg in Alg if (alg.is_eltwise if family == "eltwise" else alg.is_binary)]
    if name in known:
        return Alg[name]
    other = "binary" if family == "eltwise" else "eltwise"
    stem = name.removeprefix("eltwise_").removeprefix("binary_")
    hint = nearest(f"{family}_{stem}", known)
    if f"{family}_{stem}" in known:
        hint = f"did you mean '{family}_{stem}'?"
    elif f"{other}_{stem}" in Alg.__members__:
        hint = f"append_{other} takes '{other}_{stem}'"
    elif name == Alg.eltwise_function.name:
        hint = "append_function takes a Python function"
    rule = f"expected {'an eltwise' if family == 'eltwise' else 'a binary'} function"
    raise InvalidArguments("alg", name if isinstance(alg, Alg) else alg, rule, hint)


def read_mask(value: object) -> int:
    """Return a mask of dimensions, checked."""
    mask = read_int("mask", value)
    if not 0 <= mask <= MAX_MASK:
        raise InvalidArguments("mask", mask, "has a bit for each of at most 12 dimensions")
    return mask


def _check_operand(argument: str, desc: object) -> None:
    """Raise unless ``desc`` describes a tensor."""
    if not isinstance(desc, MemoryDesc) or desc.is_zero:
        raise InvalidArguments(argument, desc, "expected the MemoryDesc of a tensor")
