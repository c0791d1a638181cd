"""What Python adds to a kernel: the time of a call on tensors so small that nothing else counts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

import dnnl
from bench.context import SEED, Context
from bench.ours import OurOperation
from bench.report import Column, Report, Row, Table, Target
from dnnl.codegen import jit
from dnnl.primitives.desc import Desc
from dnnl.tools.bench.measure import Contender, measure

EXECUTE, BOUND, NATIVE = "execute", "bound", "native"
FORWARD = "forward_inference"
EXECUTE_LIMIT, BOUND_LIMIT = 3.0, 1.0

COLUMNS = (
    Column("primitive", "primitive"),
    Column("arguments", "arguments", "d"),
    Column(NATIVE, "native call us", ".3f"),
    Column(EXECUTE, "execute us", ".3f"),
    Column("execute_above", "above native", ".3f"),
    Column(BOUND, "bound us", ".3f"),
    Column("bound_above", "above native", ".3f"),
)
NOTE = (
    "Tiny tensors, one thread. native: the engine's own call on packed arguments, kernel included; "
    "execute: Primitive.execute; bound: a call of what Primitive.bind returned. The targets are "
    "about the whole call, which is more than what Python takes."
)


def run(context: Context, report: Report) -> None:
    """One table, on one thread."""
    context.peers.set_num_threads(1)
    rows = [_row(context, name, operation) for name, operation in _operations(context.engine)]
    targets = [
        _target("Primitive.execute, slowest of these", rows, EXECUTE, EXECUTE_LIMIT),
        _target("call of a bound primitive, slowest of these", rows, BOUND, BOUND_LIMIT),
    ]
    report.add(Table("Python around a kernel", NOTE, COLUMNS, rows), targets)


def _operations(engine: dnnl.Engine) -> Iterator[tuple[str, OurOperation]]:
    """Primitives with two, three and four arguments, filled."""
    small = dnnl.MemoryDesc((1, 16, 1, 1), "f32", "nhwc")
    relu = dnnl.PrimitiveAttr()
    relu.post_ops.append_eltwise("eltwise_relu")
    problems: tuple[tuple[str, Desc, dnnl.PrimitiveAttr | None], ...] = (
        ("eltwise", dnnl.EltwiseDesc.forward(FORWARD, "eltwise_relu", small, small), None),
        ("binary", dnnl.BinaryDesc("binary_add", small, small, small), None),
        ("convolution, bias, relu", _convolution(small), relu),
    )
    rng = np.random.default_rng(SEED)
    for name, desc, attr in problems:
        operation = OurOperation(desc, engine, 1, attr)
        for tensor in operation.pd.desc.tensors:
            operation.load(tensor.argument, rng.standard_normal(tensor.desc.dims, np.float32))
        yield name, operation


def _convolution(small: dnnl.MemoryDesc) -> dnnl.ConvolutionDesc:
    weights = dnnl.MemoryDesc((16, 16, 1, 1), "f32", "any")
    bias = dnnl.MemoryDesc((16,), "f32")
    geometry = ((1, 1), (0, 0), (0, 0), (0, 0))
    kind = "convolution_direct"
    return dnnl.ConvolutionDesc.forward(FORWARD, kind, small, weights, small, *geometry, bias)


def _row(context: Context, name: str, operation: OurOperation) -> Row:
    image, _ = jit.image(operation.pd.plan.recipe)
    executable = context.engine.load(image)
    memories = operation.memories
    pointers = tuple(memories[argument].pointer for argument in image.arguments)
    execute = partial(operation.primitive.execute, operation.stream, memories)
    contenders = [
        Contender(NATIVE, operation.stream.queue.bind(executable, pointers, 1, memories)),
        Contender(EXECUTE, execute),
        Contender(BOUND, operation.bind()),
    ]
    result = measure(contenders, context.effort(rounds=9, turn=0.02))
    return {
        "primitive": name,
        "arguments": len(pointers),
        **{key: result.median(key) * 1e6 for key in (NATIVE, EXECUTE, BOUND)},
        "execute_above": result.difference(EXECUTE, NATIVE) * 1e6,
        "bound_above": result.difference(BOUND, NATIVE) * 1e6,
    }


def _target(name: str, rows: list[Row], key: str, limit: float) -> Target:
    slowest = max(value for row in rows if isinstance(value := row[key], float))
    return Target(name, slowest, limit, at_least=False, unit=" us")
