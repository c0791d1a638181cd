"""What all kernels share that compute each element of dst from elements at the same index."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from dnnl.codegen.conversion.convert import bare_core
from dnnl.codegen.epilogue.attributes import Attributes, Result, Sources
from dnnl.codegen.epilogue.dropout import Dropper
from dnnl.codegen.epilogue.post_ops import MOST_UNROLLED, Arguments, Epilogue, broadcast
from dnnl.codegen.epilogue.quantization import Quantization, Quantizer
from dnnl.codegen.epilogue.stochastic import StochasticRounding
from dnnl.codegen.ir.builder import F32, F64, Module, Type, Value
from dnnl.codegen.ir.kernel import Kernel, Reason, Refusal
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, Axis
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.codegen.nest.schedule import ABREAST
from dnnl.kernels.shared.scratchpad import Relayout
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.dropout import Dropout
from dnnl.types.dtype import DataType, any_of
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp

Source = tuple[int, MemoryDesc, tuple[int, ...]]
Compute = Callable[[Point, list[Value]], Value]
FLOATS = frozenset({DataType.f32, DataType.bf16, DataType.f16})
WIDE_FLOATS = FLOATS | {DataType.f64}
SMALL_FLOATS = frozenset({DataType.f8_e5m2, DataType.f8_e4m3})
BYTES = frozenset({DataType.s8, DataType.u8})
INTEGERS = BYTES | {DataType.s32}
WHOLE_BYTES = frozenset(kind for kind in DataType if kind.bits >= 8)
TYPES = WIDE_FLOATS | SMALL_FLOATS | INTEGERS
"""What forward operations read and write, each tensor in a type of its own."""
_F32 = frozenset({DataType.f32})
_NONE = Quantization()
_PLAIN = Attributes()


def letters(dims: Sequence[int]) -> tuple[Axis, ...]:
    """One axis for each dimension, named as in format tags."""
    return tuple(Axis(extent, chr(ord("a") + dim)) for dim, extent in enumerate(dims))


def symbol(primitive: str, descs: Sequence[MemoryDesc], isa: Isa) -> str:
    """The name of a phase: ``primitive__types__WxH__isa``, W being the lanes of a vector."""
    types = "_".join(dict.fromkeys(str(desc.data_type) for desc in descs))
    return f"{primitive}__{types}__{isa.lanes}x1__{isa.name}"


def refuse_types(*descs: MemoryDesc, allowed: Collection[DataType] = _F32) -> Refusal | None:
    """A refusal if one of the data types is not one of ``allowed``."""
    for desc in descs:
        if desc.data_type not in allowed:
            return Refusal(Reason.DATA_TYPE, f"{desc.data_type}; it takes {any_of(allowed)}")
    return None


def refuse_forward(
    sources: Mapping[int, MemoryDesc], dst: MemoryDesc, attributes: Attributes
) -> Refusal | None:
    """Why a forward operation bound by memory does not take these tensors and attributes, or
    None."""
    refusal = refuse_types(*sources.values(), dst, allowed=TYPES)
    return refusal or attributes.refuse(sources, dst)


def computed_in(*descs: MemoryDesc) -> DataType:
    """What is computed in with these tensors, and kept between phases: f64 where one of them is."""
    return DataType.f64 if any(desc.data_type is DataType.f64 for desc in descs) else DataType.f32


def core_of(*descs: MemoryDesc) -> Type:
    """The type of a computation with tensors of any float: f64 where one of them is."""
    return F64 if computed_in(*descs) is DataType.f64 else F32


def source(argument: int, desc: MemoryDesc) -> Source:
    """A source with dst's dimensions, broadcast where it has size 1."""
    return argument, desc, tuple(range(desc.ndims))


def build_nest(
    name: str,
    isa: Isa,
    descs: Sequence[MemoryDesc],
    nests: Callable[[Arguments], Iterable[Nest]],
) -> Kernel:
    """A one-phase kernel of the only one of ``nests``; its symbol tells the types of ``descs``."""
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
    """dst = compute(sources) for every element with ``attributes``, where ``compute`` takes about
    so many ``instructions``.

    A source is (argument id, descriptor, the dst dimension that each of its dimensions follows).
    The argument of dst is ``target``. Where a tensor is f64, so is the computation.
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
        axes, (), (*given.operands, *result.inputs), result.outputs, body,
        numbers=result.numbers, reads_dst=result.reads_dst,
        registers=result.registers if drops else None,
        abreast=1 if drops else abreast(instructions + result.instructions),
        core=core_of(dst, *(desc for _, desc, _ in sources)),
    )  # fmt: skip


def abreast(instructions: int) -> int:
    """How many registers do so many instructions side by side."""
    return ABREAST if instructions > MOST_UNROLLED else 1


def emit_copy(
    module: Module,
    symbol: str,
    src: tuple[int, MemoryDesc],
    dst: tuple[int, MemoryDesc],
    arguments: Arguments,
    post_ops: Sequence[PostOp] = (),
    quantization: Quantization = _NONE,
    core: Type = F32,
    dropout: Dropout | None = None,
    *,
    stochastic: bool = False,
    requantizes: bool = False,
) -> Phase:
    """Write a phase that copies one argument into another through its ``quantization``, a dropout,
    post-ops, that of dst and rounding, as values of ``core``. It may be the end of a product, which
    ``requantizes``."""
    axes = letters(dst[1].dims)
    index = tuple(Affine.of(axis) for axis in axes)
    given = Operand(arguments.slot(src[0]), src[1], index)
    output = Operand(arguments.slot(dst[0]), dst[1], index)
    epilogue = Epilogue(post_ops, output, arguments)
    tensors = {src[0]: given, int(Arg.DST): output}
    quantizer = Quantizer(quantization, tensors, arguments, requantizes=requantizes)
    dropper = Dropper(dropout, output, arguments)
    rounding = StochasticRounding(stochastic, output, arguments)

    def body(point: Point) -> None:
        value = quantizer.dequantize(point, src[0], point.load(given))
        value = epilogue.apply(point, dropper.apply(point, value))
        value = quantizer.quantize(point, Arg.DST, value)
        point.store(output, rounding.apply(point, value))

    read = (
        given, *epilogue.operands, *quantizer.operands, *dropper.inputs, *rounding.inputs,
    )  # fmt: skip
    nest = Nest(
        axes, (), read, (output, *dropper.outputs), body,
        numbers=(*dropper.numbers, *rounding.numbers),
        reads_dst=epilogue.reads_dst, registers=dropper.registers, core=core,
    )  # fmt: skip
    return emit_nest(module, symbol, nest)


def emit_copies(
    module: Module,
    name: str,
    copies: Sequence[Relayout],
    arguments: Arguments,
    quantization: Quantization = _NONE,
) -> list[Phase]:
    """Write a phase for each copy of an operand into the scratchpad, as what its ``quantization``
    says that it stands for."""
    phases = []
    for number, (given, part) in enumerate(copies):
        isa = module.isa
        entry = f"{name}_in{number}__{part[1].data_type}__{isa.lanes}x1__{isa.name}"
        own = quantization.of_arguments((given[0],))
        core = core_of(part[1])
        if own == _NONE:
            core = bare_core(given[1].data_type, part[1].data_type)
        copy = emit_copy(module, entry, given, part, arguments, quantization=own, core=core)
        phases.append(copy)
    return phases
