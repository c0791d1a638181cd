"""The backend ``dnnl`` of `torch.compile`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from dnnl.torch import private
from dnnl.torch.aten.table import TRANSLATIONS
from dnnl.torch.differentiated import Divided, Trained
from dnnl.torch.partition import Report, partitioned
from dnnl.torch.randomness import draw_apart
from dnnl.torch.regions import Region, Whole
from dnnl.torch.resizing import WRITTEN
from dnnl.torch.sharing import apart


def compile_graph(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """A graph of `torch.compile` as a function: PyTorch calls this for ``backend="dnnl"``."""
    return compiled(module, inputs, None)


def compiled(
    module: fx.GraphModule, inputs: Sequence[Any], report: Report | None
) -> Callable[..., Any]:
    """A graph of `torch.compile` as a function; ``report`` gets who computes what."""

    less: list[Whole | Divided | Trained] = []  # what has less around the graphs than AOTAutograd

    def inference(graph: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        draw_apart(graph)
        views = apart(graph)
        found = partitioned(graph, private.static_arguments(), report, views=views)
        metadata = private.passed(module, inputs)
        if metadata is not None:
            axes = private.open_axes(metadata)
            if isinstance(found, Region):
                less.append(Whole(found, axes))
            else:
                less.append(Divided(found, axes))
        return found

    def forward(graph: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        private.donate_nothing()
        draw_apart(graph)
        views = apart(graph)
        found = partitioned(graph, (), report, views=views)  # its weights change from call to call
        metadata = private.passed(module, inputs)
        form = None if metadata is None else private.Differentiated.of(metadata)
        if form is not None:
            less.append(Trained(found, form))
        return found

    def backward(graph: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        draw_apart(graph)  # gradients have memory of their own: autograd accumulates in it
        found = partitioned(graph, (), report)
        for own in less:
            assert isinstance(own, Trained), "nothing asks gradients of other graphs"
            own.differentiate(found)
        return found

    wrapped = private.traced(module, inputs, inference, forward, backward, TRANSLATIONS, WRITTEN)
    if not less:
        return wrapped
    less[0].wrapped = wrapped
    return less[0]
