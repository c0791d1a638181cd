"""From nodes to primitives: which one, on which layouts, into which storage.

Layouts propagate: a primitive is asked with layout ``any`` wherever it may choose, and a reorder is
inserted only where what a value has differs from what its reader wants. Constants are brought into
the wanted layout once, before the first run. A `LayoutPolicy` says where layouts stop.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from dnnl.errors import Unimplemented
from dnnl.graph.graph import Graph, Node, Shape
from dnnl.graph.scope import Scope, transposition
from dnnl.graph.sizes import is_open, same_shape
from dnnl.lowering.facts import (
    Counted,
    Factors,
    Operands,
    Prepared,
    Ref,
    Source,
    Step,
    Tensor,
    argument_name,
    data_type,
)
from dnnl.lowering.policy import POLICIES, PROPAGATE, LayoutPolicy
from dnnl.lowering.steps import Described, describe
from dnnl.primitives.desc import Desc
from dnnl.primitives.primitive_desc import PrimitiveDesc
from dnnl.primitives.reorder import ReorderDesc
from dnnl.runtime.engine import Engine
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOpFunction
from dnnl.types.shaped_layout import ShapedLayout, same_places
from dnnl.types.size import SymbolTable, is_known, symbols_of
from dnnl.types.tag import FormatTag

FORWARD = "forward_inference"
LAYOUTS = tuple(POLICIES)


@dataclass
class Lowering:
    """Steps of a graph so far; the functions of ``operators`` add theirs to it."""

    graph: Graph
    engine: Engine
    policy: LayoutPolicy = PROPAGATE
    steps: list[Step] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    prepared: dict[Prepared, int] = field(default_factory=dict)
    counted: list[Counted] = field(default_factory=list)
    symbols: SymbolTable | None = None
    _moved: dict[tuple[int, MemoryDesc, MemoryDesc], int] = field(default_factory=dict)
    _last_use: dict[str, int] = field(default_factory=dict)
    _readers: dict[str, list[Node]] = field(default_factory=lambda: defaultdict(list))
    _lent: set[int] = field(default_factory=set)
    _chosen: dict[int, MemoryDesc] = field(default_factory=dict)
    _time: int = 0

    def __post_init__(self) -> None:
        kinds = (*self.graph.inputs.values(), *self.graph.types.values())
        sizes = [size for kind in kinds for size in kind.sizes]
        sizes += [n for a in self.graph.constants.values() if is_open(a) for n in a.ravel()]
        self.symbols = None if all(map(is_known, sizes)) else symbols_of(*sizes)
        for time, node in enumerate(self.graph.nodes):
            self._last_use.update(dict.fromkeys(node.reads, time))
            for value in node.reads:
                self._readers[value].append(node)
        self._last_use.update(dict.fromkeys(self.graph.outputs.values(), len(self.graph.nodes)))
        for value in self.graph.inputs:
            self.assume(value)
        self._lent = {tensor.storage for tensor in self.tensors.values()}

    def assume(self, value: str) -> None:
        """Require that ``value`` is stored row-major."""
        kind = self.graph.type_of(value)
        desc = MemoryDesc(kind.sizes, data_type(kind.dtype, value))
        self.tensors[value] = Tensor(ShapedLayout.of(desc), self._storage(desc))

    def advance(self) -> None:
        """Go on to the next node of the graph."""
        self._time += 1

    @property
    def _free(self) -> bool:
        """Whether the present node takes and chooses layouts."""
        return self.policy.propagates(self.graph.nodes[self._time].op)

    def tensor(self, value: str) -> Tensor:
        """Where a value is stored, as the present node may see it."""
        if value not in self.tensors:
            array = self.graph.constants[value]
            desc = MemoryDesc(array.shape, data_type(array.dtype, value))
            self.tensors[value] = Tensor(ShapedLayout.of(desc), constant=value)
        tensor = self.tensors[value]
        chosen = None if self._free else self._chosen.get(tensor.storage)
        if chosen is None or same_places(chosen, MemoryDesc(chosen.dims, chosen.data_type)):
            return tensor
        # The value keeps its layout for readers that take it; readers that do not share the copy.
        seen = _seen(tensor)
        moved = self.reorder(value, seen, MemoryDesc(seen.desc.dims, seen.desc.data_type))
        return Tensor(ShapedLayout.of(moved.desc), moved.storage)

    def source(
        self, value: str, shape: Shape | None = None, permutation: Sequence[int] | None = None
    ) -> Source:
        """A value seen as framework shape ``shape``, its axes permuted as an operation requires.

        A reorder is inserted where the shape cannot be seen in the present layout.
        """
        tensor = self.tensor(value)
        if shape is not None and not same_shape(shape, tensor.layout.shape):
            tensor = self._reshaped(tensor, shape, value)
        return _seen(tensor, permutation)

    def wish(self, source: Source) -> MemoryDesc:
        """The descriptor with which a primitive is asked for a tensor that it may choose."""
        layout = "any" if self._free else None
        return MemoryDesc(source.desc.dims, source.desc.data_type, layout)

    def result(self, node: Node, dims: Sequence[int]) -> MemoryDesc:
        """The descriptor with which a primitive is asked for its dst, the result of ``node``."""
        return MemoryDesc(dims, self.kind(node.output), "any" if self._free else None)

    def kind(self, value: str) -> DataType:
        """The data type of a value."""
        return data_type(self.graph.type_of(value).dtype, value)

    def ordered(self, value: str) -> MemoryDesc:
        """A plain descriptor for ``value``, row-major in the order in which its reader sees it."""
        dims, kind = self.graph.shape_of(value), self.kind(value)
        readers = self._readers[value]
        if len(readers) != 1 or readers[0].op != "Transpose":
            return MemoryDesc(dims, kind)
        order = transposition(Scope(readers[0], self.graph))
        return MemoryDesc(dims, kind, FormatTag.of(order))

    def weights(self, source: Source) -> MemoryDesc:
        """The descriptor with which a primitive is asked for weights: constants are its choice."""
        if source.constant:
            return MemoryDesc(source.desc.dims, source.desc.data_type, "any")
        return self.wish(source)

    def define(self, value: str, source: Source) -> None:
        """``value`` is stored in ``source``, in its own shape."""
        layout = ShapedLayout.of(source.desc)
        tensor = Tensor(layout, source.storage, source.constant, source.held)
        shape = self.graph.shape_of(value)
        if not same_shape(source.desc.dims, shape):
            tensor = self._reshaped(tensor, shape, value)
        self.tensors[value] = tensor

    def transpose(self, value: str, of: str, axes: Sequence[int]) -> None:
        """``value`` is ``of`` with its axes reordered: the same data under another permutation."""
        tensor = self.tensor(of)
        self.tensors[value] = replace(tensor, layout=tensor.layout.transpose(axes))

    def convert(self, value: str, of: str) -> None:
        """``value`` is ``of`` in another type of floats: its readers convert it, as well as its
        layout. What is to be converted already is stored first, rounded."""
        tensor = self.tensor(of)
        if tensor.held is not None or tensor.constant:
            tensor = self._settled(of, tensor)
        held = tensor.layout.desc
        layout = replace(tensor.layout, desc=held.with_data_type(self.kind(value)))
        self.tensors[value] = replace(tensor, layout=layout, held=held.data_type)

    def settle(self, value: str) -> None:
        """``value`` is stored in its own type from here on, also if it is a view of a constant."""
        tensor = self.tensors.get(value)
        if tensor is None or value in self.graph.constants:
            return
        if tensor.held is not None or tensor.constant:
            self.tensors[value] = self._settled(value, tensor)

    def deliver(self, value: str) -> None:
        """``value`` is an output: row-major, so that a run writes it to an array of its own."""
        self.settle(value)
        tensor = self.tensors.get(value)
        if tensor is None or tensor.constant:
            return
        source, shape = _seen(tensor), self.graph.shape_of(value)
        plain = MemoryDesc(shape, source.desc.data_type)
        if plain.data_type.bits < 8:
            return
        if not same_places(source.desc, plain):
            source = self.reorder(value, source, plain)
        self.tensors[value] = Tensor(ShapedLayout.of(plain), source.storage)

    def _settled(self, name: str, tensor: Tensor) -> Tensor:
        moved = self.reorder(name, _seen(tensor), tensor.layout.movable(tensor.layout.shape))
        return Tensor(ShapedLayout.of(moved.desc), moved.storage)

    def count(self, value: str, first: int, step: int) -> None:
        """``value`` has the numbers from ``first`` on, ``step`` apart, before the first step."""
        desc = MemoryDesc(self.graph.shape_of(value), self.kind(value))
        storage = self._storage(desc)
        self.tensors[value] = Tensor(ShapedLayout.of(desc), storage)
        self.counted.append(Counted(Ref(desc, storage), first, step))

    def part(self, value: str, of: str, axis: int, first: int, count: int, step: int = 1) -> None:
        """``value`` is ``count`` slices of ``of`` along an axis: a view of the same data."""
        tensor = self.tensor(of)
        layout = None if tensor.constant else tensor.layout.part(axis, first, count, step)
        if layout is None:
            source = _seen(tensor)
            plain = MemoryDesc(source.desc.dims, source.desc.data_type)
            moved = self.reorder(of, source, plain)
            tensor = Tensor(ShapedLayout.of(moved.desc), moved.storage)
            layout = tensor.layout.part(axis, first, count, step)
        assert layout is not None, "a plain tensor has views of its slices"
        tensor, shape = replace(tensor, layout=layout), self.graph.shape_of(value)
        same = same_shape(layout.shape, shape)
        self.tensors[value] = tensor if same else self._reshaped(tensor, shape, value)

    def emit(
        self,
        node: Node,
        desc: Desc,
        sources: Mapping[int, Source],
        flops: float = 0.0,
        factors: Sequence[Factors] = (),
        fpmath_mode: str = "strict",
        further: Mapping[int, str] | None = None,
    ) -> Source:
        """Add a step with the post-ops of its node, scales and zero points; return its result.

        ``fpmath_mode`` names the type to which products may round f32. ``further`` are values of
        the graph that are its other results, by argument.
        """
        argument, dst = desc.outputs[0].argument, desc.outputs[0].desc
        rank = dst.ndims
        operands = {
            index: [self._operand(value, rank) for value in post_op.operands]
            for index, post_op in enumerate(node.post_ops)
        }
        sum_index = self._sum_index(node, operands, sources, dst.dims)
        describe = partial(self._describe, node, desc, operands)
        made, dims = describe(sum_index, factors, fpmath_mode), dst.dims
        result = made.wanted(argument, dims)
        if sum_index is not None and not same_places(result, operands[sum_index][0].desc):
            sum_index = None
            made = describe(None, factors, fpmath_mode)
            result = made.wanted(argument, dims)
        wanted = {**sources, **{f.flag | f.argument: f.values for f in factors}}
        for index, values in operands.items():
            if index != sum_index:
                for place, operand in enumerate(values):
                    wanted[Arg.post_op(index) | (Arg.SRC_1 + place)] = operand
        args = {
            arg: self._bring(node, arg, s, made.wanted(arg, s.desc.dims))
            for arg, s in wanted.items()
        }
        storage = self._overwritten(made.pd, result, args)
        if sum_index is not None:
            storage = operands[sum_index][0].storage
        if storage is None:
            storage = self._storage(result)
        else:
            self._forget(storage)
        self._note(storage, result, chosen=self._free)
        args[argument] = Ref(result, storage)
        for other, value in (further or {}).items():
            own = made.wanted(other, desc.desc_of(other).dims)
            assert own.data_type is self.kind(value), f"{value}: a result of another type"
            args[other] = Ref(own, self._storage(own))
            self.define(value, Source(own, args[other].storage))
        self.steps.append(Step(node.name, desc.kind, made.pd, args, flops, node.fused))
        return Source(result, storage)

    def further(self, argument: int, dims: Sequence[int]) -> Source:
        """Another result ``argument`` of the last step, of these dims."""
        step = self.steps[-1]
        desc = Described(step.pd).wanted(argument, dims)
        storage = self._storage(desc)
        self.steps[-1] = replace(step, args={**step.args, argument: Ref(desc, storage)})
        return Source(desc, storage)

    def check_indices(self, extent: int) -> None:
        """A run refuses indices of the last step outside of ``extent`` elements."""
        self.steps[-1] = replace(self.steps[-1], indexed=extent)

    def reorder(self, name: str, source: Source, wanted: MemoryDesc) -> Source:
        """``source`` in another layout: a constant is prepared, an activation moved by a step."""
        if source.constant:
            key = Prepared(source.constant, source.desc, wanted)
            storage = self.prepared.setdefault(key, len(self.sizes))
            self.sizes.setdefault(storage, wanted.size)
            return Source(wanted, storage)
        place = (source.storage, source.stored, wanted)
        if place not in self._moved:
            self._moved[place] = storage = self._storage(wanted)
            self._note(storage, wanted, chosen=source.storage in self._chosen)
            pd = self._describe(None, ReorderDesc(source.stored, wanted), {}, None).pd
            args = {
                int(Arg.FROM): Ref(source.stored, source.storage),
                int(Arg.TO): Ref(wanted, storage),
            }
            self.steps.append(Step(name, "reorder", pd, args))
        return Source(wanted, self._moved[place])

    def _bring(self, node: Node, arg: int, source: Source, wanted: MemoryDesc) -> Ref:
        """The memory of a source in the layout that the primitive wants."""
        if source.constant or not same_places(source.stored, wanted):
            source = self.reorder(f"{node.name}:{argument_name(arg)}", source, wanted)
        return Ref(wanted, source.storage)

    def _reshaped(self, tensor: Tensor, shape: Shape, name: str) -> Tensor:
        layout = tensor.layout.reshape(shape)
        if layout is None:
            desc = tensor.layout.view()
            wanted = tensor.layout.movable(shape)
            if not self._free:
                wanted = MemoryDesc(desc.dims, desc.data_type)
            moved = self.reorder(name, _seen(tensor), wanted)
            tensor = Tensor(ShapedLayout.of(wanted), moved.storage)
            layout = tensor.layout.reshape(shape)
        if layout is None:
            raise Unimplemented(f"{name}: {tensor.layout.shape} cannot be seen as {shape}")
        return replace(tensor, layout=layout)

    def _operand(self, value: str, rank: int) -> Source:
        shape = self.graph.shape_of(value)
        return self.source(value, (1,) * (rank - len(shape)) + shape)

    def _sum_index(
        self,
        node: Node,
        operands: Operands,
        sources: Mapping[int, Source],
        dims: Shape,
    ) -> int | None:
        """The post-op whose operand nothing needs any more, so that dst may be added to it."""
        read = {s.storage for s in sources.values()}
        for index, post_op in enumerate(node.post_ops):
            if post_op.alg != "binary_add":
                continue
            (operand,) = operands[index]
            others = read.union(o.storage for i in operands if i != index for o in operands[i])
            if (
                same_shape(operand.desc.dims, dims)
                and operand.held is None
                and self._is_own(operand.storage)
                and not operand.constant
                and operand.storage not in others
                and self._is_last_use(operand.storage)
            ):
                return index
        return None

    def _overwritten(
        self, pd: PrimitiveDesc, dst: MemoryDesc, args: Mapping[int, Ref]
    ) -> int | None:
        """The storage of a source that nothing needs any more and that dst may take over."""
        for _, arg in pd.desc.operation.in_place:
            ref = args.get(arg)
            if ref is None or ref.desc != dst or not self._is_own(ref.storage):
                continue
            shared = [r for r in args.values() if r.storage == ref.storage]
            if len(shared) == 1 and self._is_last_use(ref.storage):
                return ref.storage
        return None

    def _is_own(self, storage: int) -> bool:
        """Whether a step may write it: inputs are the arrays of whoever runs the model."""
        return storage not in self._lent and storage not in self.prepared.values()

    def _is_last_use(self, storage: int) -> bool:
        values = (v for v, t in self.tensors.items() if t.storage == storage)
        return all(self._last_use.get(value, -1) <= self._time for value in values)

    def _describe(
        self,
        node: Node | None,
        desc: Desc,
        operands: Operands,
        sum_index: int | None,
        factors: Sequence[Factors] = (),
        fpmath_mode: str = "strict",
    ) -> Described:
        attr = PrimitiveAttr(scratchpad_mode="user", fpmath_mode=fpmath_mode)
        attr.fpmath_apply_to_int = any(each.groups for each in factors)
        for each in factors:
            each.set(attr)
        for index, post_op in enumerate(node.post_ops if node else ()):
            descs = tuple(operand.desc for operand in operands[index])
            if index == sum_index:
                attr.post_ops.append_sum()
            elif post_op.kind == "binary":
                attr.post_ops.append_binary(post_op.alg, *descs)
            elif post_op.function is not None:
                attr.post_ops.append(PostOpFunction(post_op.function, descs))
            else:
                attr.post_ops.append_eltwise(post_op.alg, post_op.alpha, post_op.beta)
        return describe(desc, self.engine, attr)

    def _storage(self, desc: MemoryDesc) -> int:
        storage = len(self.sizes)
        self.sizes[storage] = desc.size
        return storage

    def _note(self, storage: int, desc: MemoryDesc, *, chosen: bool) -> None:
        """Whether a primitive chose the layout of what is stored there from now on."""
        self._chosen.pop(storage, None)
        if chosen:
            self._chosen[storage] = desc

    def _forget(self, storage: int) -> None:
        """A storage is overwritten: it is no copy any more, and its copies are of the past."""
        self._moved = {
            key: copy for key, copy in self._moved.items() if storage not in (key[0], copy)
        }


def _seen(tensor: Tensor, permutation: Sequence[int] | None = None) -> Source:
    """A tensor with its axes permuted."""
    desc = tensor.layout.view(permutation)
    return Source(desc, tensor.storage, tensor.constant, tensor.held)
