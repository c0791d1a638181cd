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
from functorch.compile import make_boxed_func
from torch import fx
from torch._C import DispatchKey
from torch._decomp import core_aten_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.utils import counters
from torch._guards import TracingContext
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

Compiler = Callable[[fx.GraphModule, Sequence[Any]], Callable[..., Any]]


def quantized_operators() -> Any:
    """The operators that torchao's PT2E programs have between floats and integers, which PyTorch
    registers with the module that implements them."""
    import_module("torch.ao.quantization.fx._decomposed")
    return torch.ops.quantized_decomposed


def decompositions(known: Collection[Any]) -> dict[Any, Callable[..., Any]]:
    """How operators are written as those of core ATen, unless they are ``known`` or draw random
    numbers: what they are written as draws others."""
    found: Mapping[Any, Callable[..., Any]] = core_aten_decompositions()
    return {
        own: write
        for own, write in found.items()
        if own not in known and torch.Tag.nondeterministic_seeded not in own.tags
    }


def traced(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    inference: Compiler,
    training: Compiler,
    known: Collection[Any],
) -> Callable[..., Any]:
    """A graph of torch.compile as operators of ATen without side effects, compiled.

    ``inference`` compiles graphs that nothing asks gradients of, ``training`` the forward graphs of
    others, whose backward graphs are PyTorch's. Those have eager's own operators: what they may be
    written as gives other gradients in the last bits. Mutations and aliases of arguments are
    PyTorch's.
    """

    def boxed(compiler: Compiler) -> Compiler:
        return lambda graph, given: make_boxed_func(compiler(graph, given))

    differentiated = torch.is_grad_enabled() and any(
        isinstance(own, torch.Tensor) and own.requires_grad
        for own in (*inputs, *module.parameters())
    )
    backend = aot_autograd(
        fw_compiler=boxed(training),
        bw_compiler=boxed(lambda graph, _: graph),
        inference_compiler=boxed(inference),
        decompositions={} if differentiated else decompositions(known),
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


class _Supported(OperatorSupportBase):
    """The nodes of a set."""

    def __init__(self, nodes: Collection[fx.Node]) -> None:
        self._nodes = nodes

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: fx.Node) -> bool:
        return node in self._nodes


def fused(module: fx.GraphModule, nodes: Collection[fx.Node]) -> dict[str, fx.GraphModule]:
    """Move ``nodes`` into as few submodules as their order permits; these by name."""
    partitioner = CapabilityBasedPartitioner(
        module, _Supported(nodes), allows_single_node_partition=True
    )
    partitioner.fuse_partitions(partitioner.propose_partitions())
    return {
        str(node.target): getattr(module, str(node.target))
        for node in module.graph.nodes
        if node.op == "call_module"
    }


@contextmanager
def counted_breaks() -> Iterator[list[str]]:
    """A list that has, at the end, the reasons of PyTorch for the graphs that it has broken."""
    found: list[str] = []
    before = Counter(counters["graph_break"])
    yield found
    found += sorted((Counter(counters["graph_break"]) - before).keys())
