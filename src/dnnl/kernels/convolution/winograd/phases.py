"""From src to dst: transforms and product as phases of all tiles, or by work items with tiles of
their own.

::

    src, some tiles  ->  V  ->  a product for each place in a tile  ->  M  ->  dst

The product is a function of its own, which a work item calls with the addresses of its V and M in
memory of the thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from dnnl.codegen.ir.builder import I8, Emitter, Module, Value, i64
from dnnl.codegen.ir.kernel import Arguments, symbol
from dnnl.codegen.memory.access import Operand
from dnnl.codegen.nest import work_items
from dnnl.codegen.nest.calls import PhaseCalls
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.kernels.convolution.winograd.conf import WinogradConf
from dnnl.kernels.convolution.winograd.dst import DstTransform
from dnnl.kernels.convolution.winograd.src import SrcTransform
from dnnl.kernels.convolution.winograd.transform import Pointers, TileTransform
from dnnl.kernels.matmul import matmul
from dnnl.kernels.product.loops import phases
from dnnl.kernels.product.pack.border import NOWHERE
from dnnl.runtime.image import Phase

_LINE = 64


def emit_phases(module: Module, conf: WinogradConf, arguments: Arguments) -> Iterator[Phase]:
    """Write the phases of all tiles."""
    lanes = module.isa.lanes
    pixels, sums = ((arguments.slot(slot), desc) for slot, desc in (conf.pixels, conf.sums))
    before = SrcTransform(conf.tiling, conf.src, pixels, arguments, lanes)
    behind = DstTransform(conf.tiling, conf.results, sums, arguments, lanes)
    yield _emit_tiles(module, "winograd_src", before)
    yield from phases.emit(module, conf.product, arguments, matmul.products)
    yield _emit_tiles(module, "winograd_dst", behind)


def _emit_tiles(module: Module, name: str, own: TileTransform) -> Phase:
    """Write the phase that transforms all tiles."""
    entry = symbol(name, (own.operands[0].desc, own.multiplied.desc), module.isa)
    phase = PhaseFunction.of(module, entry, own.operands)
    e, pointers, count = phase.e, phase.pointers(own.operands), own.tiling.count
    items = work_items.target_items(module.isa, count * own.elements)
    size = work_items.chunk(count, 1, items) if count else 1

    def item(number: Value) -> None:
        _tiles(e, own, pointers, number, size, local=False)

    phase.each_item(-(-count // size), item)
    return phase.end(-(-count // size))


def _tiles(
    e: Emitter, own: TileTransform, pointers: Pointers, item: Value, size: int, *, local: bool
) -> None:
    """Transform the tiles of a work item that has ``size`` of them; what is multiplied has only
    these if it is ``local``."""
    first = e.mul(item, size)
    last = e.smaller(e.add(first, e.number(size)), e.number(own.tiling.count))

    def tile(number: Value) -> None:
        own.tile(e, pointers, number, e.b.sub(number, first) if local else number)

    e.loop(first, last, tile, unroll=False, name="tile")


def emit_items(module: Module, conf: WinogradConf, arguments: Arguments) -> Phase:
    """Write the phase whose work items compute the tiles of ``conf.sums``."""
    lanes, inner = module.isa.lanes, Arguments()
    (product,) = phases.emit(module, conf.product, inner, matmul.products)
    pixels, sums = ((NOWHERE, desc) for _, desc in (conf.pixels, conf.sums))
    before = SrcTransform(conf.tiling, conf.src, pixels, arguments, lanes)
    behind = DstTransform(conf.tiling, conf.results, sums, arguments, lanes)
    tensors = [op for op in (*before.operands, *behind.operands) if op.slot != NOWHERE]
    weights = arguments.slot(conf.filters.slot)
    entry = symbol("winograd", (conf.src[1], conf.results.dst[1]), module.isa)
    phase = PhaseFunction(module, entry, [*(op.slot for op in tensors), weights])
    e, size = phase.e, conf.sums[1].dims[1]
    sizes = (conf.pixels[1].size, conf.sums[1].size, product.scratch)
    begins = list(accumulate((-(-own // _LINE) * _LINE for own in sizes), initial=0))
    memory = phase.scratch(begins[-1] + PhaseCalls.nbytes(len(inner.ids)))
    of_pixels, of_sums, scratch, lists = (e.element(memory, i64(own), I8) for own in begins)
    pointers: dict[Operand, Value] = {op: phase.arguments[op.slot] for op in tensors}
    pointers |= {before.multiplied: of_pixels, behind.multiplied: of_sums}
    calls = PhaseCalls(e, lists, scratch)
    addresses = {
        conf.pixels[0]: of_pixels,
        conf.filters.slot: phase.arguments[weights],
        conf.sums[0]: of_sums,
    }

    def item(number: Value) -> None:
        _tiles(e, before, pointers, number, size, local=True)
        calls.use([addresses[argument] for argument in inner.ids])
        calls.call(product, product.count)
        _tiles(e, behind, pointers, number, size, local=True)

    count = -(-conf.tiling.count // size)
    phase.each_item(count, item)
    return phase.end(count)
