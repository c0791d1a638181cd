"""All that the backend uses of PyTorch beside its documented interface.

Tried with PyTorch 2.13.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

import torch
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch import fx
from torch._C import DispatchKey
from torch._C._dynamo.guards import _empty_strided_cpu  # type: ignore[attr-defined]
from torch._decomp import core_aten_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.utils import counters
from torch._functorch import config as functorch_config
from torch._functorch._aot_autograd.runtime_wrappers import (
    coerce_to_expected_memory_format,
    mark_dynamo_propagated_dynamic_indices,
)
from torch._functorch._aot_autograd.schemas import OutputType, PlainTensorMeta
from torch._functorch.partitioners import must_recompute
from torch._guards import TracingContext
from torch._prims_common import suggest_memory_format
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols as _free_unbacked_symbols
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

Compute = Callable[..., Any]
"""A graph as a function of its arguments; several results are a list or a tuple."""
Compiler = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]

Sizes = tuple[int, ...]
empty_strided: Callable[[Sizes, Sizes, torch.dtype], torch.Tensor] = _empty_strided_cpu
"""A new tensor of these sizes, strides and elements, in half the time of `torch.empty_strided`."""

format_of_results: Callable[[torch.Tensor], torch.memory_format] = suggest_memory_format
"""The order of axes that PyTorch gives the result of an operation on images."""

free_unbacked_symbols: Callable[[Any], Collection[Any]] = _free_unbacked_symbols
"""What an expression of numbers has that no size is: numbers that are data."""


def quantized_operators() -> Any:
    """The operators that torchao's PT2E programs have between floats and integers, which PyTorch
    registers with the module that implements them."""
    import_module("torch.ao.quantization.fx._decomposed")
    return torch.ops.quantized_decomposed


_WHOLE = frozenset((torch.ops.aten.embedding_dense_backward.default,))
"""Operators that PyTorch computes faster than what they are written as: that one adds rows to a
table of zeros in its memory."""


def decompositions(known: Collection[Any]) -> dict[Any, Callable[..., Any]]:
    """How operators are written as those of core ATen, unless they are ``known`` or draw random
    numbers: what they are written as draws others."""
    found: Mapping[Any, Callable[..., Any]] = core_aten_decompositions()
    return {
        own: write
        for own, write in found.items()
        if own not in known
        and own not in _WHOLE
        and torch.Tag.nondeterministic_seeded not in own.tags
    }


def traced(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    inference: Compiler,
    forward: Compiler,
    backward: Compiler,
    known: Collection[Any],
    written: Mapping[Any, Callable[..., Any]],
) -> Callable[..., Any]:
    """A graph of torch.compile as operators of ATen without side effects, compiled.

    ``inference`` compiles graphs that nothing asks gradients of, ``forward`` and ``backward`` the
    graphs of others, divided so that little is saved between them. Operators are core ATen's, but
    those ``known`` stay as they are, and others are ``written`` by functions. Mutations and aliases
    of arguments are PyTorch's.
    """

    def boxed(compiler: Compiler) -> Compiler:
        return lambda graph, given: make_boxed_func(compiler(graph, given))

    backend = aot_autograd(
        fw_compiler=boxed(forward),
        bw_compiler=boxed(backward),
        inference_compiler=boxed(inference),
        partition_fn=_divided,
        decompositions=decompositions(known),
    )
    with _written_as(written):
        compiled: Callable[..., Any] = backend(module, inputs)
    return compiled


def _divided(joint: fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Any:
    """The forward and the backward graph of a joint one, with little saved between them.

    A checkpointed batch normalization is computed again in the backward graph, which then would
    read running statistics that the forward pass has changed. So its results do not come from the
    operator that updates these.
    """
    functional = torch.ops.aten._native_batch_norm_legit_functional.default
    for node in joint.graph.find_nodes(op="call_function", target=functional):
        x, weight, bias, _, _, is_training, *numbers = node.args
        if not (is_training and must_recompute(node)):
            continue
        with joint.graph.inserting_before(node):
            alone = torch.ops.aten._native_batch_norm_legit.no_stats
            again = joint.graph.call_function(alone, (x, weight, bias, True, *numbers))
        again.meta = {**node.meta, "val": node.meta["val"][:3]}
        del node.meta["recompute"]
        for user in list(node.users):
            if user.args[1] < len(again.meta["val"]):
                user.replace_input_with(node, again)
            else:
                user.meta.pop("recompute", None)
    joint.recompile()
    return min_cut_rematerialization_partition(joint, inputs, **options)


@contextmanager
def _written_as(written: Mapping[Any, Callable[..., Any]]) -> Iterator[None]:
    """While a graph is traced, operators are written by these functions, and not by what PyTorch
    has registered for that in Python, which no table of decompositions switches off."""
    keys = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)
    before = [
        (own, key, own.py_kernels[key]) for own in written for key in keys if key in own.py_kernels
    ]
    for own, key, _ in before:
        own.py_kernels[key] = written[own]
        own._dispatch_cache.clear()
    try:
        yield
    finally:
        for own, key, kernel in before:
            own.py_kernels[key] = kernel
            own._dispatch_cache.clear()


def static_arguments() -> frozenset[int]:
    """The arguments of the graph that is compiled now that are parameters or buffers, without those
    that it changes."""
    context = TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    if metadata is None:
        return frozenset()
    return frozenset(metadata.static_input_indices).difference(metadata.mutated_inp_runtime_indices)


def passed(module: fx.GraphModule, inputs: Sequence[Any]) -> Any | None:
    """AOTAutograd's metadata of the graph of `torch.compile` that is compiled now, if arguments and
    results are those of the graph of ATen; else None.

    AOTAutograd's wrapper, 2 us a call, then only switches off gradients and autocast, which reach
    PyTorch's operators alone, and marks results of open sizes.
    """
    context = TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    if metadata is None or len(metadata.input_info) != len(inputs) or [*module.parameters()]:
        return None
    tensors = (*metadata.subclass_inp_meta, *metadata.subclass_fw_graph_out_meta)
    if (
        not all(isinstance(own, PlainTensorMeta) for own in tensors)
        or metadata.num_mutated_inp_runtime_indices
        or metadata.mutated_graph_handled_indices_seen_by_autograd
        or metadata.num_outputs_aliased
        or metadata.num_intermediate_bases
        or metadata.tokens
        or metadata.num_graphsafe_rng_states
        or metadata.is_rng_op_functionalized
        or metadata.grad_enabled_mutation is not None
    ):
        return None
    return metadata


is_autocast: Callable[[], bool] = torch._C._is_any_autocast_enabled
"""Whether the graph that is compiled now has been traced with autocast."""
is_transforming: Callable[[], bool] = torch._C._are_functorch_transforms_active
"""Whether a call is one of `torch.func`."""


@dataclass(frozen=True)
class Differentiated:
    """How the forward graph and the backward graph of AOTAutograd fit, where `passed`.

    The forward graph returns so many ``results``, then what the backward graph reads: tensors that
    must not change until then (``checked``), others (``unchecked``), and ``numbers``. ``constants``
    are the places of results without gradients, ``views`` those of results that are no views for
    autograd. The backward graph reads the ``tangents``, gradients of results by place, in the
    memory format that it expects. ``open_saved`` are tensors of those that it reads.
    ``is_autocast`` says that both run without the caller's autocast.
    """

    metadata: Any
    results: int
    checked: slice
    unchecked: slice
    numbers: slice
    constants: Sequence[int]
    views: Sequence[int]
    open_saved: OpenAxes
    is_autocast: bool

    @classmethod
    def of(cls, metadata: Any) -> Differentiated | None:
        """That of the forward graph that is compiled now; None where more is passed than tensors
        and numbers."""
        if (
            metadata.num_opaque_objects_saved_for_bw
            or metadata.num_backward_tokens
            or metadata.indices_of_inputs_that_requires_grad_with_mutations_in_bw
        ):
            return None
        infos = metadata.output_info
        return cls(
            metadata,
            metadata.num_forward_returns,
            metadata.tensors_saved_for_backwards_with_vc_check_slice,
            metadata.tensors_saved_for_backwards_no_vc_check_slice,
            metadata.symints_saved_for_backwards_slice,
            [place for place, own in enumerate(infos) if not own.requires_grad],
            list(metadata.unsafe_view_out_indices),
            list(metadata.dynamic_saved_tensors_idxs.items()),
            is_autocast(),
        )

    def function(self, results: Sequence[Any]) -> Any | None:
        """AOTAutograd's `autograd.Function`, which has returned these results of a call; None where
        there is none, or where it is not called with the arguments as they are."""
        nodes = (own.grad_fn for own in results if isinstance(own, torch.Tensor))
        for node in nodes:
            found = getattr(node, "_forward_cls", None)
            if getattr(found, "metadata", None) is self.metadata:
                return None if self._detaches(found) else found
        return None

    def _detaches(self, function: Any) -> bool:
        """Whether there are arguments whose gradients the backward graph leaves out: AOTAutograd
        detaches them, so that no gradient arrives there."""
        (output,) = function._lazy_backward_info.bw_module.graph.find_nodes(op="output")
        return any(
            gradient is None and own.requires_grad
            for gradient, own in zip(output.args[0], self.metadata.input_info, strict=True)
        )

    def saved(self, ctx: Any, found: Sequence[Any]) -> tuple[Any, ...]:
        """The results among what the forward graph returns; ``ctx`` gets the rest, as
        AOTAutograd's `autograd.Function` has it."""
        checked, unchecked = (
            [own.detach() if own._is_view() else own for own in found[part]]
            for part in (self.checked, self.unchecked)
        )
        every = [*checked, *unchecked]
        for place, axes in self.open_saved:
            mark(every[place], axes)
        ctx.save_for_backward(*checked)
        ctx._tensors_no_vc_check = unchecked
        ctx.symints, ctx.opaque_objects = found[self.numbers], ()
        results = [*found[: self.results]]
        for place in self.views:
            if results[place]._is_view():
                results[place] = _unsafe_view(results[place], results[place].shape)
        if self.constants:
            own = (results[place] for place in self.constants)
            ctx.mark_non_differentiable(*(one for one in own if isinstance(one, torch.Tensor)))
        ctx._materialize_non_diff_grads = False
        return tuple(results)

    @property
    def tangents(self) -> Sequence[tuple[int, Any]]:
        """The results whose gradients the backward graph reads, and their memory formats."""
        places = [
            place
            for place, own in enumerate(self.metadata.output_info)
            if own.output_type in _OF_THE_GRAPH
            and issubclass(own.raw_type, torch.Tensor)
            and own.requires_grad_for_backward
        ]
        formats = [own.memory_format for own in self.metadata.subclass_tangent_meta]
        return list(zip(places, formats, strict=True))


_OF_THE_GRAPH = (
    OutputType.non_alias,
    OutputType.unsafe_view_alias,
    OutputType.custom_function_view,
)
_unsafe_view: Callable[..., torch.Tensor] = torch.ops.aten._unsafe_view.default
laid_out: Callable[[torch.Tensor, Any], torch.Tensor] = coerce_to_expected_memory_format
"""A tensor in the memory format that a backward graph expects."""

untraced: Callable[[Compute], Compute] = torch._dynamo.disable
"""A function into which Dynamo does not look."""
no_autocast: Any = torch._C._DisableAutocast
"""A context without the caller's autocast."""


def applied(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """What applies a Function outside of `torch.func`, whose tensors the Python method looks for,
    1 us a call."""
    found: Callable[..., Any] = super(torch.autograd.Function, function).apply  # type: ignore[misc]
    return found


def donate_nothing() -> None:
    """Let the backward graph of the forward graph that is compiled now run again: it overwrites
    nothing that is saved for it, which AOTAutograd allows graphs that run once."""
    context = TracingContext.try_get()
    if context is not None and context.fw_metadata is not None:
        context.fw_metadata.bw_donated_idxs = []


OpenAxes: TypeAlias = Sequence[tuple[int, set[int]]]
"""Tensors by place, and those of their axes whose sizes are open."""
mark: Callable[[torch.Tensor, set[int]], None] = mark_dynamo_propagated_dynamic_indices
"""Say which sizes of a result are open, for a graph that reads it."""


def open_axes(metadata: Any) -> OpenAxes:
    """The results of a graph that AOTAutograd marks."""
    every = enumerate(own.dynamic_dims for own in metadata.output_info)
    return [(place, axes) for place, axes in every if axes]


class _Named(OperatorSupportBase):
    """Nodes by name."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: fx.Node) -> bool:
        return node.name in self._names


def fused(module: fx.GraphModule, parts: Sequence[Collection[str]]) -> dict[str, fx.GraphModule]:
    """Move the nodes of each part, by name, into as few submodules as their order permits; these by
    name. The nodes of the graph are new ones, of the same names."""
    for number, names in enumerate(parts):
        partitioner = CapabilityBasedPartitioner(
            module, _Named(names), allows_single_node_partition=True
        )
        partitioner.fuse_partitions(partitioner.propose_partitions(), f"part_{number}_")
    return {
        str(node.target): getattr(module, str(node.target))
        for node in module.graph.nodes
        if node.op == "call_module"
    }


@contextmanager
def explaining() -> Iterator[list[str]]:
    """While backward graphs are compiled with the forward ones, not when they are called: a list
    that has, at the end, the reasons of PyTorch for the graphs that it has broken."""
    found: list[str] = []
    before = Counter(counters["graph_break"])
    with functorch_config.patch(force_non_lazy_backward_lowering=True):
        yield found
    found += sorted((Counter(counters["graph_break"]) - before).keys())
