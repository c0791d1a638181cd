"""Reorder to 4-bit elements whose rows share bytes.

A row with an odd number of elements ends in the middle of a byte, where the next one begins:
vectors cannot be stored independently. So dst is first written to the scratchpad, in its own layout
with a byte for each element, and then packed as one line:

    src  --walk dst-->  bytes, low halves are codes  --line-->  dst

If a post-op reads the previous contents of dst, these are unpacked into the scratchpad before.
"""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.codegen.ir.builder import I8, Module
from dnnl.codegen.ir.kernel import Kernel, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.nest.nest import emit_nest, shares_bytes
from dnnl.kernels.reorder import reorder
from dnnl.kernels.shared.copies import emit_copy
from dnnl.kernels.shared.scratchpad import Argument
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOpSum


@dataclass(frozen=True)
class NibblesConf:
    """A reorder, and the bytes in the scratchpad to which it writes codes."""

    reorder: reorder.ReorderConf
    codes: Argument

    @property
    def scratchpad(self) -> int:
        """In bytes."""
        return self.codes[1].size


def configure(conf: reorder.ReorderConf, isa: Isa) -> NibblesConf | None:
    """The reorder by codes in the scratchpad, or None if dst can be written directly."""
    dst = conf.dst
    if dst.data_type.bits != 4 or dst.has_zero_dim:
        return None
    # Gaps, and the other half of a first byte, must not be written.
    if not dst.is_dense(padded=True) or dst.offset0 % 2:
        return None
    if not shares_bytes(isa, reorder.Copy(conf).nest):
        return None
    codes = MemoryDesc(
        dst.dims,
        DataType.u8,
        dst.strides,
        inner_blocks=dst.inner_blocks,
        padded_dims=dst.padded_dims,
    )
    return NibblesConf(conf, (Arg.SCRATCHPAD, codes))


def build(conf: NibblesConf, isa: Isa) -> Kernel:
    """A nest that writes codes, and the copies of lines around it."""
    copy = reorder.Copy(conf.reorder, conf.codes)
    module = Module("reorder", isa)
    dst, (argument, codes) = conf.reorder.dst, conf.codes
    count = (dst.nelems(padded=True),)
    packed = Arg.DST, MemoryDesc(count, DataType.u4, offset0=dst.offset0)
    apart = argument, MemoryDesc(count, codes.data_type)
    phases = []
    if any(isinstance(entry, PostOpSum) for entry in conf.reorder.post_ops):
        entry = symbol("reorder_in", [packed[1], codes], isa)
        phases.append(emit_copy(module, entry, packed, apart, copy.arguments, core=I8))
    entry = symbol("reorder", [conf.reorder.src, dst], isa)
    phases.append(emit_nest(module, entry, copy.nest))
    entry = symbol("reorder_out", [codes, packed[1]], isa)
    phases.append(emit_copy(module, entry, apart, packed, copy.arguments, core=I8))
    return Kernel(module, tuple(phases), copy.arguments.ids)
