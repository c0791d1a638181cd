"""A 1x1 convolution and the depthwise one behind it, in one kernel.

The result of the first, the *intermediate*, is quantized to a type of its own and read by the
second only. If layouts allow it, parts of it are computed and consumed in the cache of a thread
(`chain_bands`). Otherwise it is stored in the scratchpad, and the two convolutions are separate
phases.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dnnl.codegen.epilogue.quantization import Quantization, Specs
from dnnl.codegen.ir.builder import Module
from dnnl.codegen.ir.kernel import Arguments, Kernel, Refusal
from dnnl.codegen.isa import Isa
from dnnl.kernels.convolution.chain_bands import Bands, emit_bands, open_weights, plan_bands
from dnnl.kernels.convolution.depthwise import depthwise
from dnnl.kernels.convolution.direct import convolution
from dnnl.kernels.convolution.direct.compute import ConvolutionConf, products
from dnnl.kernels.convolution.direct.lines import flatten
from dnnl.kernels.convolution.direct.problem import ConvolutionProblem, refuse_quantization
from dnnl.kernels.product.loops import phases as product_phases
from dnnl.kernels.product.plan.plan import plan
from dnnl.kernels.product.plan.refusals import refuse_problem
from dnnl.kernels.shared.scratchpad import Scratchpad
from dnnl.types.arg import Arg
from dnnl.types.kinds import FormatKind
from dnnl.types.memory_desc import MemoryDesc

_POST_OP = Arg.post_op(0)
_QUANTIZATION = Arg.SCALES | Arg.ZERO_POINTS


@dataclass(frozen=True)
class Chain:
    """The two problems, each with the arguments that it would have alone. ``number`` is the index
    of the depthwise convolution among the post-ops."""

    first: ConvolutionProblem
    second: ConvolutionProblem
    number: int

    def argument(self, own: int) -> int:
        """The argument of the chain for the second convolution's ``own`` argument; its src is the
        dst of the first."""
        if own >= _POST_OP:
            return own + (self.number + 1) * _POST_OP
        flag = own & _QUANTIZATION
        if own - flag == Arg.SRC:
            return flag | Arg.DST if flag else int(Arg.SCRATCHPAD)
        if own == Arg.DST:
            return own
        return own | Arg.POST_OP_DW


@dataclass(frozen=True)
class ChainConf:
    """A chain with every layout decided: in ``bands``, or as phases of which ``first`` are the
    earlier ones. ``scratchpad`` is in bytes."""

    chain: Chain
    bands: Bands | None
    first: ConvolutionConf | None
    scratchpad: int


class _OfSecond(Arguments):
    """The arguments of a chain as its second convolution names them."""

    def __init__(self, chain: Chain, every: Arguments) -> None:
        super().__init__()
        self._chain, self._every = chain, every

    def slot(self, argument: int) -> int:
        """The slot of the argument in the chain."""
        return self._every.slot(self._chain.argument(argument))


def split(given: Quantization) -> tuple[Quantization, Quantization]:
    """The quantization of the first convolution, and that of the second."""

    def of_first(specs: Specs) -> Specs:
        return tuple((arg, spec) for arg, spec in specs if not arg & Arg.POST_OP_DW)

    def of_second(specs: Specs) -> Specs:
        between = [(int(Arg.SRC), spec) for arg, spec in specs if arg == Arg.DST]
        own = [(arg - Arg.POST_OP_DW, spec) for arg, spec in specs if arg & Arg.POST_OP_DW]
        return (*between, *own)

    return (
        Quantization(of_first(given.scales), of_first(given.zero_points), given.adjust),
        Quantization(of_second(given.scales), of_second(given.zero_points)),
    )


def resolve(chain: Chain, isa: Isa) -> Chain:
    """Decide the layouts that are ``any``; weights get the layout that the bands read."""
    first = convolution.resolve_activations(chain.first, isa)
    second = depthwise.resolve(replace(chain.second, src=first.dst), isa)
    if first.weights.format_kind is FormatKind.any:
        first = replace(first, weights=open_weights(first, second, isa))
    return replace(chain, first=convolution.resolve(first, isa), second=second)


def configure(chain: Chain, isa: Isa) -> ChainConf | Refusal:
    """Plan a chain whose layouts are all decided."""
    refusal = refuse_problem(chain.first) or refuse_quantization(chain.first)
    if refusal is not None:
        return refusal
    second = depthwise.configure(chain.second, isa)
    if isinstance(second, Refusal):
        return second
    bands = plan_bands(chain.first, chain.second, isa)
    if bands is not None:
        return ChainConf(chain, bands, None, 0)
    first = plan(flatten(chain.first), isa)
    scratchpad = Scratchpad(first.scratchpad)
    between = scratchpad.take(chain.first.dst)
    _, last = first.dst if first.copy_out is None else first.copy_out[1]
    last = _at_offset(last, between[1].offset0)
    if first.copy_out is None:
        first = replace(first, dst=(between[0], last))
    else:
        first = replace(first, copy_out=(first.copy_out[0], (between[0], last)))
    resolved = replace(chain, second=replace(chain.second, src=between[1]))
    return ChainConf(resolved, None, first, scratchpad.size)


def _at_offset(desc: MemoryDesc, begin: int) -> MemoryDesc:
    return MemoryDesc(
        desc.dims, desc.data_type, desc.strides, inner_blocks=desc.inner_blocks, offset0=begin
    )


def build(conf: ChainConf, isa: Isa) -> Kernel:
    """The bands, or the phases of the two convolutions."""
    module, arguments = Module("convolution", isa), Arguments()
    chain = conf.chain
    if conf.bands is not None:
        phase = emit_bands(
            module,
            conf.bands,
            chain.first,
            chain.second,
            arguments,
            lambda every: _OfSecond(chain, every),
            chain.argument,
        )
        return Kernel(module, (phase,), arguments.ids)
    assert conf.first is not None
    phases = product_phases.emit(module, conf.first, arguments, products)
    own = _OfSecond(chain, arguments)
    last = depthwise.emit(module, "depthwise", chain.second, own)
    return Kernel(module, (*phases, last), arguments.ids)
