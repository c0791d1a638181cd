"""What depthwise convolutions share that compute a row of outputs for some vectors of channels.

Channels are contiguous. A work item is a row of a panel of channels: which taps above and below are
inside is the same for all of the row, and which ones to the left and the right for all rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from dnnl.codegen.conversion.convert import storage
from dnnl.codegen.epilogue.post_ops import Epilogue
from dnnl.codegen.epilogue.product_epilogue import Depth, ProductEpilogue
from dnnl.codegen.epilogue.quantization import Quantizer
from dnnl.codegen.ir import vector
from dnnl.codegen.ir.builder import Emitter, Module, Type, Value
from dnnl.codegen.ir.kernel import Arguments, Kernel, symbol
from dnnl.codegen.isa import Isa
from dnnl.codegen.memory.access import Env, Operand
from dnnl.codegen.memory.address import ZERO, Affine, Axis
from dnnl.codegen.nest.phase import PhaseFunction
from dnnl.codegen.product.brgemm import TileShape
from dnnl.codegen.product.multiply import Multiply
from dnnl.kernels.convolution.depthwise.groups import DEPTHWISE, Groups
from dnnl.kernels.convolution.direct.pieces import activation_index, weights_index
from dnnl.kernels.convolution.direct.problem import ConvolutionProblem
from dnnl.kernels.product.base.store import Columns
from dnnl.kernels.product.plan.summary import PlanSummary
from dnnl.kernels.shared.copies import emit_copies
from dnnl.kernels.shared.scratchpad import Argument, Relayout
from dnnl.runtime.image import Phase
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc


@dataclass(frozen=True)
class DepthwiseRowsConf(ABC):
    """A problem whose activations have contiguous channels. ``weights`` have contiguous channels
    too, a panel has ``vectors`` vectors of them. ``scratchpad`` is in bytes."""

    problem: ConvolutionProblem
    weights: Argument
    multiply: Multiply
    core: DataType
    vectors: int
    copies_in: tuple[Relayout, ...]
    scratchpad: int

    @property
    def groups(self) -> Groups:
        """What the outputs in a vector read."""
        return DEPTHWISE

    @property
    def summary(self) -> PlanSummary:
        """The decisions, for `dnnl explain`."""
        return PlanSummary(self.multiply, copies_in=self.copies_in)

    @abstractmethod
    def emit(self, module: Module, name: str, arguments: Arguments) -> list[Phase]:
        """Write the phases ``name`` of the convolution, behind the copies."""


@dataclass(frozen=True)
class RowsWalk:
    """The axes of dst: images, places and channels; ``source`` are those of src that the channels
    read, in K groups."""

    batch: Axis
    places: tuple[Axis, Axis, Axis]
    columns: Columns
    source: Columns

    @staticmethod
    def of(conf: DepthwiseRowsConf, isa: Isa) -> RowsWalk:
        """The axes of a problem's dst."""
        problem = conf.problem
        depth, height, width = (
            Axis(space.dst, name)
            for space, name in zip(problem.space, ("od", "oh", "ow"), strict=True)
        )
        columns = Columns.of(problem.groups, TileShape(1, conf.vectors), isa.lanes)
        source = conf.groups.source(columns)
        return RowsWalk(Axis(problem.dst.dims[0], "n"), (depth, height, width), columns, source)

    @property
    def items(self) -> tuple[Axis, ...]:
        """The axes of a work item: a row of a panel."""
        return (self.batch, *self.places[:2], self.columns.panel)


@dataclass(frozen=True, eq=False)
class RowsTensors:
    """The operands of the convolution, and the epilogue of its sums. A zero point of src is
    subtracted before that."""

    src: Operand
    weights: Operand
    zero_point: Operand | None
    finish: ProductEpilogue

    @staticmethod
    def of(
        conf: DepthwiseRowsConf,
        image: Affine,
        channel: Affine,
        there: list[Affine],
        arguments: Arguments,
        read: Affine | None = None,
    ) -> RowsTensors:
        """The tensors of a problem at a channel of an image, dst at the pixel ``there``, src at the
        channel ``read`` if that is another."""
        problem, zeros = conf.problem, [ZERO] * 3
        of_src, _, of_dst = problem.arguments

        def activation(arg: int, desc: MemoryDesc, c: Affine, at: list[Affine]) -> Operand:
            index = activation_index(desc, image, (c,), at)
            return Operand(arguments.slot(arg), desc, index)

        src = activation(of_src, problem.src, channel if read is None else read, zeros)
        dst = activation(of_dst, problem.dst, channel, there)
        slot, desc = conf.weights
        index = weights_index(desc, True, channel, ZERO, ZERO, zeros)
        weights = Operand(arguments.slot(slot), desc, index)
        bias = None
        if not problem.bias.is_zero:
            bias = Operand(arguments.slot(Arg.BIAS), problem.bias, (channel,))
        tensors = {int(Arg.SRC): src, int(Arg.WEIGHTS): weights, int(Arg.DST): dst}
        whole, later = (
            Quantizer(given, tensors, arguments, requantizes=True)
            for given in (problem.quantization, problem.quantization.without_zero_points(Arg.SRC))
        )
        finish = ProductEpilogue(
            conf.multiply,
            conf.core,
            dst,
            bias,
            Epilogue(problem.post_ops, dst, arguments),
            later,
            (Arg.SRC, Arg.WEIGHTS),
            Depth(0, 0),
        )
        return RowsTensors(src, weights, whole.zero_point(Arg.SRC), finish)

    @property
    def operands(self) -> tuple[Operand, ...]:
        """All operands that are accessed."""
        given = () if self.zero_point is None else (self.zero_point,)
        return (self.src, self.weights, *given, *self.finish.operands)


class DepthwiseRowsWriter(ABC):
    """Writes a depthwise convolution by rows."""

    def __init__(
        self, module: Module, name: str, conf: DepthwiseRowsConf, arguments: Arguments
    ) -> None:
        self.space = conf.problem.space
        self.walk = RowsWalk.of(conf, module.isa)
        there = list(map(Affine.of, self.walk.places))
        image, read = Affine.of(self.walk.batch), self.walk.source.form * conf.groups.k_group
        form = self.walk.columns.form
        self.tensors = RowsTensors.of(conf, image, form, there, arguments, read)
        problem = conf.problem
        entry = symbol(name, (problem.src, problem.weights, problem.dst), module.isa)
        self.function = PhaseFunction.of(module, entry, self.tensors.operands)
        self.e = self.function.e
        self.pointers = self.function.pointers(self.tensors.operands)
        self.steps = three(problem.src.strides[2:])

    @property
    def items(self) -> tuple[Axis, ...]:
        """The axes of a work item."""
        return self.walk.items

    def phase(self) -> Phase:
        """The phase."""
        count = prod(axis.extent for axis in self.items)

        def item(number: Value) -> None:
            env: dict[Axis, Value] = {}
            for axis in reversed(self.items):
                number, env[axis] = self.e.divmod(number, axis.extent)
            self.item(env)

        self.function.each_item(count, item)
        return self.function.end(count)

    @abstractmethod
    def item(self, env: Env) -> None:
        """Write one work item."""


def build_rows(name: str, conf: DepthwiseRowsConf, isa: Isa) -> Kernel:
    """The kernel ``name``: the copies of weights, and the convolution."""
    module, arguments = Module(name, isa), Arguments()
    phases = emit_copies(module, name, conf.copies_in, arguments)
    phases += conf.emit(module, name, arguments)
    return Kernel(module, tuple(phases), arguments.ids)


def has_scalar_src_zero_point(problem: ConvolutionProblem) -> bool:
    """Whether src has at most one zero point, of at least 8 bits, and weights have none."""
    points = dict(problem.quantization.zero_points)
    of_src = points.get(Arg.SRC)
    one = of_src is None or not (of_src.mask or of_src.data_type.bits < 8)
    return Arg.WEIGHTS not in points and one


def load_one(e: Emitter, pointer: Value, operand: Operand, core: Type) -> Value:
    """The single element of an operand, in all lanes."""
    row = storage(operand.data_type, core)
    one = e.b.load(pointer, typ=row.element, align=operand.data_type.size)
    return row.to_core(e, vector.splat(e, one, e.isa.lanes))


def three(strides: Sequence[int]) -> list[int]:
    """The strides along depth, height and width; 0 for the missing first ones."""
    return [0] * (3 - len(strides)) + list(strides)
