"""What Python adds to a kernel: the time of a call on tensors so small that nothing else counts."""

from __future__ import annotations

from functools import partial

from bench.contest import Contest, read
from bench.context import Context
from bench.report import Column, Report, Row, Target
from dnnl import Arg, Memory
from dnnl.codegen.compile import jit
from dnnl.tools.bench.cases import Case
from dnnl.tools.measure import Contender, measure

EXECUTE, BOUND, NATIVE = "execute", "bound", "native"
EXECUTE_LIMIT, BOUND_LIMIT = 3.0, 1.0

_LINES = {
    "eltwise": "eltwise --dir=FWD_I --alg=relu --tag=axb 1x16x1x1",
    "binary": "binary --stag=axb:axb --dtag=axb 1x16x1x1:1x16x1x1",
    "convolution, bias, relu": "conv --dir=FWD_I --bia-dt=f32 --stag=axb --dtag=axb "
    "--attr-post-ops=relu mb1ic16ih1oc16kh1",
    "batch normalization, training": "bnorm --dir=FWD_D --flags=CH --tag=axb ic16ih1",
    "layer normalization, backward": "lnorm --dir=BWD_DW --flags=CH --tag=abx 1x16",
}
CASES = {name: case for name, line in _LINES.items() for case in read(*line.split())}
"""Primitives with two to eight arguments."""

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
    rows = [_row(context, name, case) for name, case in CASES.items()]
    targets = [
        _target("Primitive.execute, slowest of these", rows, EXECUTE, EXECUTE_LIMIT),
        _target("call of a bound primitive, slowest of these", rows, BOUND, BOUND_LIMIT),
    ]
    report.add("Python around a kernel", NOTE, COLUMNS, rows, targets)


def _row(context: Context, name: str, case: Case) -> Row:
    contest = Contest(context, case, 1)
    image, _ = jit.image(contest.pd.plan.recipe)
    executable, stream = context.engine.load(image), contest.stream
    memories = {**contest.memories}
    if Arg.SCRATCHPAD in image.arguments:
        memories[Arg.SCRATCHPAD] = Memory(contest.pd.scratchpad_desc, context.engine)
    pointers = tuple(memories[argument].pointer for argument in image.arguments)
    contenders = [
        Contender(NATIVE, stream.queue.bind(executable, pointers, 1, memories)),
        Contender(EXECUTE, partial(contest.primitive.execute, stream, contest.memories)),
        Contender(BOUND, contest.bind()),
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
