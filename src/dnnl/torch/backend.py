"""The backend ``dnnl`` of `torch.compile`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from dnnl.torch import private
from dnnl.torch.aten.table import TRANSLATIONS
from dnnl.torch.partition import Report, partitioned

_log = logging.getLogger("dnnl.torch")


def compile_graph(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """A graph of `torch.compile` as a function: PyTorch calls this for ``backend="dnnl"``."""
    return compiled(module, inputs, None)


def compiled(
    module: fx.GraphModule, inputs: Sequence[Any], report: Report | None
) -> Callable[..., Any]:
    """A graph of `torch.compile` as a function; ``report`` gets who computes what."""

    def inference(graph: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        return partitioned(graph, private.static_arguments(), report)

    return private.traced(module, inputs, inference, _training, TRANSLATIONS)


def _training(graph: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
    """The forward graph of a computation with gradients, which is PyTorch's."""
    _log.info("a graph with gradients is computed by PyTorch; torch.no_grad() makes it dnnl's")
    return graph
