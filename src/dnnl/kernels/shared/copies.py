"""Phases that copy an operand into another layout or type."""

from __future__ import annotations

from collections.abc import Sequence

from dnnl.codegen.conversion.convert import bare_core
from dnnl.codegen.epilogue.dropout import Dropper
from dnnl.codegen.epilogue.post_ops import Epilogue
from dnnl.codegen.epilogue.quantization import Quantization, Quantizer
from dnnl.codegen.epilogue.stochastic import StochasticRounding
from dnnl.codegen.ir.builder import F32, Module, Type
from dnnl.codegen.ir.kernel import Arguments
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, Axis, letters
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.codegen.nest.point import Point
from dnnl.kernels.shared.scratchpad import Relayout
from dnnl.kernels.shared.types import core_of
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.dropout import Dropout
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp

_NONE = Quantization()
_GROUP_BITS = 32


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
    """Write a phase that copies one argument into another: dequantization, a dropout, post-ops,
    quantization of dst and rounding, computed in ``core``. As the end of a product it
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

    read = (given, *epilogue.operands, *quantizer.operands, *dropper.inputs, *rounding.inputs)
    nest = Nest(
        axes,
        (),
        read,
        (output, *dropper.outputs),
        body,
        numbers=(*dropper.numbers, *rounding.numbers),
        reads_dst=epilogue.reads_dst,
        registers=dropper.registers,
        core=core,
    )
    return emit_nest(module, symbol, nest)


def emit_copies(
    module: Module,
    name: str,
    copies: Sequence[Relayout],
    arguments: Arguments,
    quantization: Quantization = _NONE,
) -> list[Phase]:
    """Write a phase for each copy of an operand into the scratchpad, dequantized by its
    ``quantization``."""
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


def emit_k_groups(
    module: Module,
    symbol: str,
    src: tuple[int, MemoryDesc],
    copy: tuple[int, MemoryDesc],
    arguments: Arguments,
) -> Phase:
    """Write a phase that copies one argument into another, whose innermost block may be a K group
    of 32 bits. Vectors of each member of a group are loaded and stored interleaved, unless the
    members are neighbours in ``src``."""
    core = bare_core(src[1].data_type, copy[1].data_type)
    dim, group = copy[1].inner_blocks[-1] if copy[1].inner_blocks else (0, 1)
    if group * copy[1].data_type.bits != _GROUP_BITS or src[1].strides[dim] == 1:
        return emit_copy(module, symbol, src, copy, arguments, core=core)
    axes = list(letters(copy[1].dims))
    axes[dim] = Axis(copy[1].padded_dims[dim] // group, axes[dim].name)
    read, written = [], []
    for member in range(group):
        index = [Affine.of(axis) for axis in axes]
        index[dim] = Affine.of(axes[dim], group) + member
        read.append(Operand(arguments.slot(src[0]), src[1], tuple(index)))
        written.append(Operand(arguments.slot(copy[0]), copy[1], tuple(index)))

    def body(point: Point) -> None:
        point.store_interleaved(written, [point.load(operand) for operand in read])

    nest = Nest(tuple(axes), (), tuple(read), tuple(written), body, core=core)
    return emit_nest(module, symbol, nest)
