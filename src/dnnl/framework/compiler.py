"""From a model to what a session runs: passes, lowering, a plan, kernels, prepared constants.

What only compiling needs is imported with this module, which `lazy` brings when something is
compiled: a plan out of a file needs none of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection

import numpy as np

from dnnl import config
from dnnl.errors import Error, InvalidArguments
from dnnl.framework.moving import is_moved_by_numpy, move
from dnnl.framework.plan import Compiled
from dnnl.framework.planning import kernels_of, plan_of
from dnnl.framework.progress import Progress, Report
from dnnl.graph.graph import Array, Graph, Node, Pass, blamed_on
from dnnl.lowering.facts import Prepared
from dnnl.lowering.graphs import Lowering
from dnnl.lowering.policy import POLICIES
from dnnl.operators.table import operator_of
from dnnl.passes.affine import fold_affine
from dnnl.passes.attention import attention_in_one
from dnnl.passes.constants import fold_constants
from dnnl.passes.deconvolutions import deconvolutions_by_products
from dnnl.passes.expand import expand
from dnnl.passes.functions.exact import join_exact, join_integers
from dnnl.passes.functions.joined import join_functions
from dnnl.passes.functions.regions import fuse_functions
from dnnl.passes.fusion import fuse_post_ops
from dnnl.passes.identities import drop_identities, join_transpositions, split_variadic
from dnnl.passes.precision import fuse_conversions, in_precision, rounding_of, within_range
from dnnl.passes.quantized.conversions import move_conversions, prefer_unsigned
from dnnl.passes.quantized.dynamic import scale_behind_products
from dnnl.passes.quantized.functions import convert_by_functions
from dnnl.passes.quantized.products import fuse_products
from dnnl.passes.recurrent import weights_as_floats
from dnnl.passes.small_types import as_bytes
from dnnl.passes.views import factors_behind_products, sink_views
from dnnl.primitives.attention import types_of
from dnnl.primitives.primitive import Primitive, build_ahead
from dnnl.primitives.primitive_desc import PrimitiveDesc, select_isa
from dnnl.primitives.reorder import ReorderDesc
from dnnl.primitives.rnn_plans import multiplies_byte_pairs
from dnnl.runtime.engine import Engine
from dnnl.runtime.memory import Memory
from dnnl.runtime.storage import check_capacity
from dnnl.runtime.stream import Stream
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType
from dnnl.types.memory_desc import MemoryDesc

PASSES: tuple[Pass, ...] = (
    join_transpositions,
    drop_identities,
    split_variadic,
    expand,
    as_bytes,
    drop_identities,
    fold_constants,
    move_conversions,
    prefer_unsigned,
    scale_behind_products,
    fuse_products,
    convert_by_functions,
    join_integers,
    fuse_functions,
    factors_behind_products,
    sink_views,
    fold_affine,
    join_functions,
    join_exact,
    fuse_post_ops,
    deconvolutions_by_products,
    fuse_conversions,
)
"""What happens to a specialized graph before it is lowered, in this order."""


def optimize(graph: Graph, kind: DataType = DataType.f32) -> Graph:
    """A specialized graph after all passes, in the precision of a type of floats."""
    narrow = kind is not DataType.f32
    if narrow:
        graph = within_range(graph, kind)
    for rewrite in PASSES:
        graph = rewrite(graph)
    return in_precision(graph, kind) if narrow else graph


def lower(
    graph: Graph,
    engine: Engine,
    layout: str = "propagate",
    refuse: Callable[[Node, Error], None] | None = None,
) -> Lowering:
    """The steps of an optimized graph.

    ``refuse``, if given, is called for each node that cannot be lowered, and lowering continues as
    if it had been. Otherwise the error is raised.
    """
    if str(layout) not in POLICIES:
        raise InvalidArguments("layout", layout, f"must be one of {', '.join(POLICIES)}")
    check_environment(engine)
    lowering = Lowering(graph, engine, POLICIES[str(layout)])
    for node in graph.nodes:
        try:
            with blamed_on(node):
                operator_of(node).lower(lowering, node)
        except Error as error:
            if refuse is None:
                raise
            refuse(node, error)
            for value in filter(None, node.outputs):
                lowering.assume(value)
        lowering.advance()
    for value in graph.outputs.values():
        lowering.deliver(value)
    return lowering


def check_environment(engine: Engine) -> None:
    """Raise InvalidArguments for a bad knob, before a node could be blamed for it."""
    for knob in config.KNOBS:
        config.get(knob.name)
    select_isa(engine)


def compiled(
    graph: Graph,
    engine: Engine,
    layout: str = "propagate",
    kind: DataType = DataType.f32,
    report: Report | None = None,
) -> Compiled:
    """What runs a specialized graph."""
    return _Compilation(engine, report).of(graph, layout, kind)


class _Compilation:
    """Makes the primitives of one graph: steps that do the same share one."""

    def __init__(self, engine: Engine, report: Report | None) -> None:
        self._engine, self._progress = engine, Progress(report)
        self._stream = Stream(engine)
        self._primitives: dict[object, Primitive] = {}

    def of(self, graph: Graph, layout: str, kind: DataType) -> Compiled:
        """What runs the graph."""
        engine, optimized = self._engine, optimize(graph, kind)
        isa = select_isa(engine)
        optimized = attention_in_one(optimized, types_of(isa))
        optimized = weights_as_floats(optimized, in_pairs=multiplies_byte_pairs(isa))
        lowering = lower(optimized, engine, layout)
        plan = plan_of(lowering, rounding_of(optimized))
        check_capacity(sum(key.desc.size for key in lowering.prepared))
        preparations = _preparations(lowering.prepared, engine)
        reorders = [(key.value, pd) for key, pd in preparations.items() if pd is not None]
        kernels = [*reorders, *((step.name, step.pd) for step in lowering.steps)]
        self._progress.expect(kernels)
        self._images = build_ahead((pd for _, pd in kernels), self._progress.ready)
        constants: dict[int, Memory] = {}
        for key, storage in lowering.prepared.items():
            content = optimized.constants[key.value]
            constants[storage] = self._prepare(key, preparations[key], content)
        primitives = [self._primitive(step.pd) for step in lowering.steps]
        self._stream.wait()  # runs have streams of their own
        made = kernels_of(plan, primitives)
        return Compiled(plan, engine, isa.name, isa.features, made, constants)

    def _prepare(self, key: Prepared, pd: PrimitiveDesc | None, array: Array) -> Memory:
        """A constant in the layout that its readers want."""
        wanted = Memory(key.desc, self._engine)
        content = np.require(array, requirements=["C", "W"]).reshape(-1).view(np.uint8)
        if pd is None:
            move(key, content, wanted)
            return wanted
        if self._engine.host_memory:
            source = Memory(key.source, self._engine, content)
        else:
            source = Memory(key.source, self._engine)
            source.write(content)
        self._primitive(pd).execute(self._stream, {Arg.FROM: source, Arg.TO: wanted})
        return wanted

    def _primitive(self, pd: PrimitiveDesc) -> Primitive:
        primitive = self._primitives.get(pd.key)
        if primitive is None:
            self._primitives[pd.key] = primitive = Primitive(pd, images=self._images)
        self._progress.ready(pd)
        return primitive


def _preparations(
    keys: Collection[Prepared], engine: Engine
) -> dict[Prepared, PrimitiveDesc | None]:
    """The reorders of constants to the layouts of their readers; None where NumPy does it."""
    nbytes: Counter[tuple[MemoryDesc, MemoryDesc]] = Counter()
    for key in keys:
        nbytes[key.source, key.desc] += key.desc.size
    return {
        key: None
        if is_moved_by_numpy(key, nbytes[key.source, key.desc])
        else PrimitiveDesc(ReorderDesc(key.source, key.desc), engine)
        for key in keys
    }
