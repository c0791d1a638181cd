"""What every kernel does to a value between computing and storing it: the post-ops, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from llvmlite import ir

from dnnl.codegen.functions import expression
from dnnl.codegen.ir.builder import Emitter, Values, i64
from dnnl.codegen.ir.kernel import Arguments, Reason, Refusal
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import broadcast
from dnnl.codegen.memory.place import Place
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import (
    PostOp,
    PostOpDepthwise,
    PostOpEltwise,
    PostOpFunction,
    PostOpPrelu,
    PostOpSum,
)
from dnnl.types.tag import FormatTag

# Post-ops of more instructions than this are not written out for every register of a tile: the
# code would grow, and the time to compile it, far beyond what a loop costs at run time.
MOST_UNROLLED = 8
_LOADED = 3  # instructions of what has an operand to load


def prelu_weights(mask: int, dst: MemoryDesc) -> MemoryDesc:
    """The descriptor of a prelu post-op's weights: dst's dimensions where ``mask`` has a bit,
    f32, channels innermost."""
    dims = [extent if mask >> dim & 1 else 1 for dim, extent in enumerate(dst.dims)]
    order = [0, *range(2, dst.ndims), 1] if dst.ndims > 1 else range(dst.ndims)
    return MemoryDesc(dims, "f32", FormatTag.of(order) if dims else None)


def refuse(
    post_ops: Sequence[PostOp], dst: MemoryDesc, sources: Iterable[MemoryDesc] = ()
) -> Refusal | None:
    """Why these post-ops cannot be generated, or None; f64 tensors make them compute in f64."""
    double = any(desc.data_type is DataType.f64 for desc in (dst, *sources))
    for number, entry in enumerate(post_ops):
        where = f"post-op {number}"
        if isinstance(entry, PostOpSum):
            read = entry.data_type or dst.data_type
            if entry.zero_point and not read.is_integer:
                detail = f"{where}: zero point of a sum with {read}, which is no integer"
                return Refusal(Reason.POST_OP, detail)
        elif isinstance(entry, PostOpFunction):
            missing = expression.without_f64(entry.expression)
            if double and missing is not None:
                detail = f"{where}: {missing} of f64; tensors of f32 have it"
                return Refusal(Reason.POST_OP, detail)
        elif isinstance(entry, PostOpDepthwise):
            rule = "one of them may follow a 1x1 convolution of images (N, C, H, W)"
            return Refusal(Reason.POST_OP, f"{where}: PostOpDepthwise; {rule}")
        elif entry.expression is None:
            return Refusal(Reason.POST_OP, f"{where}: {type(entry).__name__}")
    return None


def _instructions(entry: PostOp) -> int:
    if isinstance(entry, PostOpEltwise | PostOpFunction):
        return _LOADED * len(entry.operands) + expression.instructions(entry.expression)
    return _LOADED


class Epilogue:
    """Post-ops bound to the operands that they read. ``operands`` are those besides dst."""

    def __init__(self, post_ops: Sequence[PostOp], dst: Operand, arguments: Arguments) -> None:
        self._post_ops, self._dst = tuple(post_ops), dst
        self._operands: dict[int, list[Operand]] = {}
        for number, entry in enumerate(self._post_ops):
            given = entry.operands
            if isinstance(entry, PostOpPrelu):
                given = ((int(Arg.WEIGHTS), prelu_weights(entry.mask, dst.desc)),)
            self._operands[number] = [
                Operand(
                    arguments.slot(Arg.post_op(number) | argument),
                    desc,
                    broadcast(desc, dst.index, dst.desc.dims),
                )
                for argument, desc in given
            ]

    @property
    def operands(self) -> tuple[Operand, ...]:
        """What the post-ops read besides the destination."""
        return tuple(operand for given in self._operands.values() for operand in given)

    @property
    def reads_dst(self) -> bool:
        """Whether the post-ops need what the destination held before."""
        return any(isinstance(entry, PostOpSum) for entry in self._post_ops)

    @property
    def instructions(self) -> int:
        """About how many instructions the post-ops take."""
        return sum(map(_instructions, self._post_ops))

    def each(
        self, e: Emitter, results: Values, store: Callable[[ir.Value, ir.Value], None]
    ) -> None:
        """Run ``store(number, value)`` for every one of ``results``, all of one type.

        It is written out for each of them, unless the post-ops are long: then the results go to
        the stack, and ``store`` is written once, in a loop.
        """
        if self.instructions <= MOST_UNROLLED:
            for number, value in enumerate(results):
                store(i64(number), value)
            return
        kind = results[0].type
        with e.b.goto_entry_block():
            buffer = e.b.alloca(kind, len(results))
        for number, value in enumerate(results):
            e.b.store(value, e.b.gep(buffer, [i64(number)], source_etype=kind))

        def body(number: ir.Value) -> None:
            place = e.b.gep(buffer, [number], source_etype=kind)
            store(number, e.b.load(place, typ=kind))

        e.loop(i64(0), i64(len(results)), body, unroll=False, name="result")

    def apply(self, place: Place, value: ir.Value) -> ir.Value:
        """Run the post-ops on one vector."""
        e = place.e
        for number, entry in enumerate(self._post_ops):
            others = [place.load(operand) for operand in self._operands[number]]
            if isinstance(entry, PostOpSum):
                value = self._add(place, value, entry)
            elif entry.expression is not None:
                value = expression.emit(e, entry.expression, [value, *others])
        return value

    def _add(self, place: Place, value: ir.Value, entry: PostOpSum) -> ir.Value:
        old = place.load_as(self._dst, entry.data_type or self._dst.data_type)
        if entry.zero_point:
            old = place.e.b.fsub(old, place.constant(float(entry.zero_point)))
        if entry.scale != 1.0:
            old = place.e.b.fmul(old, place.constant(entry.scale))
        return place.e.b.fadd(value, old)
