"""All that the backend uses of PyTorch beside its documented interface.

Tried with PyTorch 2.13.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch import fx
from torch._C import DispatchKey
from torch._C._dynamo.guards import _empty_strided_cpu  # type: ignore[attr-defined]
from torch._decomp import core_aten_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.utils import counters
from torch._functorch import config as functorch_config
from torch._functorch._aot_autograd.schemas import PlainTensorMeta
from torch._guards import TracingContext
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

Compiler = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]

Sizes = tuple[int, ...]
empty_strided: Callable[[Sizes, Sizes, torch.dtype], torch.Tensor] = _empty_strided_cpu
"""A new tensor of these sizes, strides and elements, in half the time of `torch.empty_strided`."""


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
    training: Compiler,
    known: Collection[Any],
) -> Callable[..., Any]:
    """A graph of torch.compile as operators of ATen without side effects, compiled.

    ``inference`` compiles graphs that nothing asks gradients of, ``training`` the forward and the
    backward graphs of others, divided so that little is saved between them. Mutations and aliases
    of arguments are PyTorch's.
    """

    def boxed(compiler: Compiler) -> Compiler:
        return lambda graph, given: make_boxed_func(compiler(graph, given))

    backend = aot_autograd(
        fw_compiler=boxed(training),
        bw_compiler=boxed(training),
        inference_compiler=boxed(inference),
        partition_fn=min_cut_rematerialization_partition,
        decompositions=decompositions(known),
    )
    # Resamplings have no type for open sizes but that of what they are written as.
    is_open = any(isinstance(own, torch.SymInt) for own in inputs)
    with _not_decomposed([own for own in known if "upsample" in own.name() and not is_open]):
        compiled: Callable[..., Any] = backend(module, inputs)
    return compiled


@contextmanager
def _not_decomposed(operators: Sequence[Any]) -> Iterator[None]:
    """While a graph is traced, operators are not written as others by what PyTorch has registered
    for that in Python, which no table of decompositions switches off."""
    keys = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)
    taken = [
        (own, key, own.py_kernels.pop(key))
        for own in operators
        for key in keys
        if key in own.py_kernels
    ]
    for own in operators:
        own._dispatch_cache.clear()
    try:
        yield
    finally:
        for own, key, kernel in taken:
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


def is_passed_as_it_is(module: fx.GraphModule, inputs: Sequence[Any]) -> bool:
    """Whether arguments and results of the graph of `torch.compile` that is compiled now are those
    of the graph of ATen: AOTAutograd's wrapper, 2 us a call, then only switches off gradients and
    autocast, which reach PyTorch's operators alone."""
    context = TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    if metadata is None or len(metadata.input_info) != len(inputs) or [*module.parameters()]:
        return False
    tensors = (*metadata.subclass_inp_meta, *metadata.subclass_fw_graph_out_meta)
    return all(isinstance(own, PlainTensorMeta) for own in tensors) and not (
        metadata.num_mutated_inp_runtime_indices
        or metadata.mutated_graph_handled_indices_seen_by_autograd
        or metadata.num_outputs_aliased
        or metadata.num_intermediate_bases
        or metadata.dynamic_outputs
        or metadata.tokens
        or metadata.num_graphsafe_rng_states
        or metadata.grad_enabled_mutation is not None
    )


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
