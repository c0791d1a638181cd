"""Modules and exported programs of PyTorch as models."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.export.graph_signature import InputKind, OutputKind

from dnnl.errors import InvalidArguments, Unimplemented
from dnnl.framework.model import Model
from dnnl.graph.graph import Array
from dnnl.torch import private
from dnnl.torch.aten.composed import DECOMPOSITIONS
from dnnl.torch.aten.table import TRANSLATIONS
from dnnl.torch.functions.decomposed import decompositions
from dnnl.torch.graphs import imported, reasons_against
from dnnl.torch.tensors import array_of

_WEIGHTS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)

_aten: Any = torch.ops.aten
_METADATA = _aten._assert_tensor_metadata.default
"""Says which type a tensor has; an export writes one before each conversion."""
_OF_NUMBERS = (
    _aten._assert_scalar.default,
    _aten.sym_constrain_range.default,
    _aten.sym_constrain_range_for_size.default,
)
"""Assertions of numbers: of sizes, or of data."""


def from_torch(
    program: torch.nn.Module | torch.export.ExportedProgram,
    example: Any,
    dynamic_shapes: Any,
) -> Model:
    """The model of a module or of an exported program; see `dnnl.from_torch`."""
    if isinstance(program, torch.export.ExportedProgram):
        if dynamic_shapes is not None:
            rule, hint = "a program has its own", "pass it to torch.export.export"
            raise InvalidArguments("dynamic_shapes", dynamic_shapes, rule, hint)
        exported = program
    elif isinstance(program, torch.nn.Module):
        given = _arguments(example)
        with torch.no_grad():
            exported = torch.export.export(program, *given, dynamic_shapes=dynamic_shapes)
    else:
        rule = "expected a torch.nn.Module or a torch.export.ExportedProgram"
        raise InvalidArguments("program", type(program).__name__, rule)
    with torch.no_grad():
        written = {
            **private.decompositions(TRANSLATIONS),
            **DECOMPOSITIONS,
            **decompositions(),
        }
        exported = exported.run_decompositions(written)
    module: Any = exported.graph_module
    _drop_assertions(module.graph)
    _check_operators(module)
    names, weights = _results(exported), _weights(exported)
    return Model(imported(module, weights, names).graph)


def _arguments(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call, those by position and those by name."""
    given: Any = (example,) if isinstance(example, torch.Tensor) else example
    by_name = isinstance(given, Mapping) and all(isinstance(name, str) for name in given)
    if not by_name and not isinstance(given, list | tuple):
        found = None if given is None else type(given).__name__
        rule = "a module is exported on a tensor, a tuple of arguments or a dict of those by name"
        raise InvalidArguments("example", found, rule, "from_torch(net, torch.zeros(1, 3, 8, 8))")
    for place, own in given.items() if by_name else enumerate(given):
        if isinstance(own, np.ndarray):
            rule, hint = "expected a tensor", "torch.from_numpy makes one"
            raise InvalidArguments(f"example[{place!r}]", type(own).__name__, rule, hint)
    return ((), dict(given)) if by_name else (tuple(given), {})


def _weights(program: torch.export.ExportedProgram) -> dict[int, Array]:
    """The contents of those arguments of the graph that are no inputs."""
    found = {}
    for place, spec in enumerate(program.graph_signature.input_specs):
        if spec.kind not in _WEIGHTS:
            continue
        target = spec.target
        held: Mapping[str, Any] = program.state_dict
        tensor = held[target] if target in held else program.constants[target]
        found[place] = array_of(tensor)
    return found


def _results(program: torch.export.ExportedProgram) -> list[str]:
    """The names of the results; raises Unimplemented where a run changes more than these."""
    names = []
    for spec in program.graph_signature.output_specs:
        if spec.kind is not OutputKind.USER_OUTPUT:
            rule = "a model has results alone; call eval() on the module first"
            raise Unimplemented(f"the module changes {spec.target!r} ({spec.kind.name}): {rule}")
        names.append(spec.arg.name)
    return names


def _drop_assertions(graph: torch.fx.Graph) -> None:
    """Erase what only asserts types and sizes: a model has those of its inputs."""
    for node in reversed(graph.nodes):
        is_unused_truth = isinstance(node.meta.get("val"), torch.SymBool) and not node.users
        if node.target is _METADATA or is_unused_truth:
            graph.erase_node(node)
        elif node.target in _OF_NUMBERS:
            number = node.args[0]
            found = number.meta["val"] if isinstance(number, torch.fx.Node) else number
            if not private.free_unbacked_symbols(found):
                graph.erase_node(node)


def _check_operators(module: torch.fx.GraphModule) -> None:
    """Raise Unimplemented that names every operator which models do not have."""
    found: dict[str, int] = {}
    for node, reason in reasons_against(module).items():
        if node.target is not operator.getitem:
            text = f"{node.target}: {reason}"
            found[text] = found.get(text, 0) + 1
    if found:
        reasons = [f"{text} ({count} times)" for text, count in found.items()]
        raise Unimplemented("the program has operators that models do not have", reasons)
