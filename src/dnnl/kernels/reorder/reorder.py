"""Copy a tensor into another layout and type."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dnnl.codegen.conversion import convert
from dnnl.codegen.epilogue.post_ops import Epilogue, refuse
from dnnl.codegen.epilogue.quantization import Quantization, Quantizer
from dnnl.codegen.ir.builder import F32, F64, Module, Type, Value
from dnnl.codegen.ir.kernel import Arguments, Kernel, Refusal, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.isa.caches import LINE
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.memory.address import Affine, letters
from dnnl.codegen.memory.place import Place
from dnnl.codegen.nest.nest import Nest, emit_nest
from dnnl.kernels.reorder.compensation import emit_compensation
from dnnl.kernels.shared.scratchpad import Argument
from dnnl.types.arg import Arg
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOp, PostOpSum

_LINE_BITS = 8 * LINE
_WIDE = 64


@dataclass(frozen=True)
class ReorderConf:
    """Source and destination, and the operations in between."""

    src: MemoryDesc
    dst: MemoryDesc
    post_ops: tuple[PostOp, ...]
    quantization: Quantization

    @property
    def adjusts(self) -> tuple[float, float]:
        """The factors of weights with compensation: for those that are read, and those that are
        written."""
        src, dst = (
            1.0 if desc.compensation is None else desc.compensation.scale_adjust
            for desc in (self.src, self.dst)
        )
        return 1 / src, dst

    @property
    def computes(self) -> bool:
        """Whether anything but a conversion is done."""
        adjusted = self.adjusts != (1, 1)
        return bool(self.post_ops) or self.quantization != Quantization() or adjusted

    @property
    def core(self) -> Type:
        """The type of the computation."""
        if not self.computes:
            return convert.bare_core(self.src.data_type, self.dst.data_type)
        # Elementary functions exist in f32 only.
        sums = all(isinstance(entry, PostOpSum) for entry in self.post_ops)
        wide = _WIDE in (self.src.data_type.bits, self.dst.data_type.bits)
        return F64 if wide and sums else F32


def configure(
    src: MemoryDesc, dst: MemoryDesc, post_ops: tuple[PostOp, ...], quantization: Quantization
) -> ReorderConf | Refusal:
    """Accept any two layouts and types."""
    refusal = refuse(post_ops, dst, (src,)) or quantization.refuse({Arg.SRC: src, Arg.DST: dst})
    return refusal or ReorderConf(src, dst, post_ops, quantization)


class Copy:
    """The operands of a reorder, and the computation of one element.

    ``codes`` are bytes to which the codes of a 4-bit dst are written in its place.
    """

    def __init__(self, conf: ReorderConf, codes: Argument | None = None) -> None:
        self.arguments = Arguments()
        self.axes = letters(conf.dst.dims)
        index = tuple(Affine.of(axis) for axis in self.axes)
        self.src = Operand(self.arguments.slot(Arg.SRC), conf.src, index)
        if codes is None:
            self.dst = Operand(self.arguments.slot(Arg.DST), conf.dst, index)
        else:
            slot = self.arguments.slot(codes[0])
            self.dst = Operand(slot, codes[1], index, codes=conf.dst.data_type)
        self._epilogue = Epilogue(conf.post_ops, self.dst, self.arguments)
        tensors: dict[int, Operand] = {Arg.SRC: self.src, Arg.DST: self.dst}
        self._adjusts, self._core = conf.adjusts, conf.core
        # Without computation and conversion, elements are copied as integers.
        same = conf.src.data_type is conf.dst.data_type
        self._bare = same and conf.core not in (F32, F64)
        self._quantizer = Quantizer(conf.quantization, tensors, self.arguments)

    @property
    def operands(self) -> tuple[Operand, ...]:
        """dst, src, and the other operands."""
        return (self.dst, self.src, *self._epilogue.operands, *self._quantizer.operands)

    @property
    def nest(self) -> Nest:
        """The loops over all elements."""
        return Nest(
            self.axes,
            (),
            self.operands[1:],
            (self.dst,),
            self.run,
            reads_dst=self._epilogue.reads_dst,
            core=self._core,
            registers=None,
            copied=self.src if self._bare else None,
        )

    def run(self, place: Place) -> None:
        """Load, dequantize, quantize and store."""
        value = self._quantizer.dequantize(place, Arg.SRC, place.load(self.src))
        before, behind = self._adjusts
        value = self._epilogue.apply(place, _times(place, value, before))
        value = _times(place, value, behind)
        place.store(self.dst, self._quantizer.quantize(place, Arg.DST, value))


def _times(place: Place, value: Value, factor: float) -> Value:
    return value if factor == 1 else place.e.b.fmul(value, place.constant(factor))


def build(conf: ReorderConf, isa: Isa) -> Kernel:
    """One nest that loads, dequantizes, quantizes and stores; then the compensation of what it
    stored."""
    copy = Copy(conf)
    module = Module("reorder", isa)
    entry = symbol("reorder", [conf.src, conf.dst], isa)
    nest = copy.nest
    if isa.vector_bits < _LINE_BITS:
        # One line of src at a time: two interleaved ones are slower when memory is busy.
        conversion_group = convert.conversion_group(isa, conf.dst.data_type, conf.core)
        nest = replace(nest, registers=min(conversion_group, _LINE_BITS // isa.vector_bits))
    phase = emit_nest(module, entry, nest)
    sums = emit_compensation(module, conf.dst, copy.dst.slot)
    return Kernel(module, (phase, *sums), copy.arguments.ids)
