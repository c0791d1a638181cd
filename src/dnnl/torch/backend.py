"""The backend ``dnnl`` of `torch.compile`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from dnnl.torch import private
from dnnl.torch.aten.table import TRANSLATIONS
from dnnl.torch.partition import Report, partitioned
from dnnl.torch.randomness import draw_apart
from dnnl.torch.regions import Region, Whole


def compile_graph(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """A graph of `torch.compile` as a function: PyTorch calls this for ``backend="dnnl"``."""
    return compiled(module, inputs, None)


def compiled(
    module: fx.GraphModule, inputs: Sequence[Any], report: Report | None
) -> Callable[..., Any]:
    """A graph of `torch.compile` as a function; ``report`` gets who computes what."""

    whole: list[Region] = []

    def inference(graph: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        draw_apart(graph)
        found = partitioned(graph, private.static_arguments(), report)
        if isinstance(found, Region) and private.is_passed_as_it_is(module, inputs):
            whole.append(found)
        return found

    def training(graph: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        """A forward or backward graph: its weights change from call to call."""
        draw_apart(graph)
        return partitioned(graph, (), report)

    wrapped = private.traced(module, inputs, inference, training, TRANSLATIONS)
    return Whole(whole[0], wrapped) if whole else wrapped
