"""What pointwise kernels share, which compute each element of dst from elements at the same
index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from dnnl.codegen.epilogue.attributes import Attributes, Result, Sources
from dnnl.codegen.epilogue.post_ops import MOST_UNROLLED
from dnnl.codegen.ir.builder import Module, Value
from dnnl.codegen.ir.kernel import Arguments, Kernel, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, broadcast, letters
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.codegen.nest.schedule import UNROLL
from dnnl.kernels.shared.types import core_of
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc

Source = tuple[int, MemoryDesc, tuple[int, ...]]
Compute = Callable[[Point, list[Value]], Value]
_PLAIN = Attributes()


def source(argument: int, desc: MemoryDesc) -> Source:
    """A source with dst's dimensions, broadcast where it has size 1."""
    return argument, desc, tuple(range(desc.ndims))


def build_nest(
    name: str,
    isa: Isa,
    descs: Sequence[MemoryDesc],
    nests: Callable[[Arguments], Iterable[Nest]],
) -> Kernel:
    """A one-phase kernel of the only one of ``nests``; its symbol contains the types of
    ``descs``."""
    module, arguments = Module(name, isa), Arguments()
    (nest,) = nests(arguments)
    phase = emit_nest(module, symbol(name, descs, isa), nest)
    return Kernel(module, (phase,), arguments.ids)


def pointwise(
    arguments: Arguments,
    sources: Sequence[Source],
    dst: MemoryDesc,
    compute: Compute,
    attributes: Attributes = _PLAIN,
    *,
    target: Arg = Arg.DST,
    instructions: int = 1,
) -> Nest:
    """dst = compute(sources) for every element with ``attributes``. ``compute`` takes about
    ``instructions`` instructions.

    A source is (argument id, descriptor, the dst dimension that each of its dimensions follows).
    The argument of dst is ``target``. The computation is in f64 if a tensor is.
    """
    axes = letters(dst.dims)
    index = tuple(Affine.of(axis) for axis in axes)
    inputs = {
        arg: Operand(arguments.slot(arg), desc, broadcast(desc, [index[dim] for dim in dims]))
        for arg, desc, dims in sources
    }
    given = Sources(attributes, inputs, arguments)
    result = Result(attributes, Operand(arguments.slot(target), dst, index), arguments)

    def body(point: Point) -> None:
        result.store(point, compute(point, [given.load(point, arg) for arg in inputs]))

    drops = attributes.dropout is not None
    return Nest(
        axes,
        (),
        (*given.operands, *result.inputs),
        result.outputs,
        body,
        numbers=result.numbers,
        reads_dst=result.reads_dst,
        registers=result.registers if drops else None,
        unroll=1 if drops else unroll_factor(instructions + result.instructions),
        core=core_of(dst, *(desc for _, desc, _ in sources)),
    )


def unroll_factor(instructions: int) -> int:
    """The number of registers that a body of ``instructions`` processes together."""
    return UNROLL if instructions > MOST_UNROLLED else 1
