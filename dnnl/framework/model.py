"""Models: read from ONNX, given other sizes or parameters, compiled to sessions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dnnl.framework.graph import Graph, Shape, TensorType
from dnnl.framework.onnx_model import graph_to_proto, read_graph
from dnnl.framework.random_weights import with_random_weights
from dnnl.framework.session import Session
from dnnl.framework.specialize import rebatched, specialize
from dnnl.runtime.engine import Engine


@dataclass(frozen=True)
class Model:
    """A graph as its file has it; methods give changed models and leave this one as it is."""

    graph: Graph

    @property
    def inputs(self) -> Mapping[str, TensorType]:
        """What the model takes."""
        return self.graph.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of its results."""
        return tuple(self.graph.outputs)

    def with_batch(self, batch: int) -> Model:
        """The model with ``batch`` as the first size of every input."""
        return Model(rebatched(self.graph, batch))

    def with_shapes(self, input_shapes: Mapping[str, Shape]) -> Model:
        """The model for these sizes: every shape known, what is constant computed."""
        return Model(specialize(self.graph, input_shapes))

    def with_random_weights(self, seed: int) -> Model:
        """The model, all sizes known, with seeded parameters of a proper scale."""
        return Model(with_random_weights(specialize(self.graph), seed))

    def compile(
        self,
        engine: Engine,
        batch: int | None = None,
        layout: str = "propagate",
        num_threads: int | None = None,
    ) -> Session:
        """The model on an engine.

        ``layout`` "plain" keeps every activation row-major instead of letting layouts propagate.
        ``num_threads`` is what the stream of a run uses.
        """
        graph = self.graph if batch is None else rebatched(self.graph, batch)
        return Session(specialize(graph), engine, layout, num_threads)

    def to_onnx(self) -> bytes:
        """The model as the bytes of an ONNX file."""
        content: bytes = graph_to_proto(self.graph).SerializeToString()
        return content


def load(path: str | Path) -> Model:
    """The model in an ONNX file.

    Raises ModelError, with the reason, for a file that is no usable model.
    """
    return Model(read_graph(path))
