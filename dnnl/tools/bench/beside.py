"""A case beside a peer: a second reference in mode C, a second time in mode P."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.primitives.primitive import Primitive
from dnnl.reference.arrays import Array, f64
from dnnl.runtime.stream import Stream
from dnnl.tools.bench.compare import SMALL, Rule, compare
from dnnl.tools.bench.compensation import judge_sums
from dnnl.tools.bench.measure import in_turns, timed_runs
from dnnl.tools.bench.peers.onednn import OneDnn, PeerOperation
from dnnl.tools.bench.result import PeerResult, Result, State
from dnnl.tools.bench.template import Measured
from dnnl.tools.bench.trial import Trial
from dnnl.types.arg import Arg
from dnnl.types.dtype import DataType


def check_beside(
    peer: OneDnn, trial: Trial, stream: Stream, meant: Mapping[int, Array], result: Result
) -> None:
    """Compare a right result with the peer's as well, and note in ``result`` what came of it.

    Both may be off the reference, so that twice as much is accepted, and the peer may have lost
    the digits of small values, so that these count absolutely.
    """
    try:
        operation = _prepared(peer, trial, stream)
    except Unimplemented as error:
        result.peer = PeerResult(peer.name, refusal=str(error))
        return
    operation.bind()
    result.peer = PeerResult(peer.name, operation.impl_info)
    memory = trial.memories[Arg.DST]
    kind = memory.desc.data_type
    core = DataType.f64 if kind in (DataType.f64, DataType.s32) else DataType.f32
    want, rule = operation.read(), _doubled(trial.rule(meant))
    verdict = compare("DST", f64(memory.numpy()), want, kind, core, rule)
    if memory.desc.compensation is not None:
        for sums in judge_sums(memory, operation.sums):
            verdict = verdict.with_errors(sums.errors, sums.lines)
    if verdict.errors:
        result.state = State.FAILED
        result.errors, result.total = verdict.errors, verdict.total
        result.lines = (*verdict.lines, f"right by the reference, but not as {peer.name} has it")


def _doubled(rule: Rule) -> Rule:
    return replace(
        rule,
        threshold=2 * rule.threshold,
        slack=max(2 * rule.slack, SMALL),
        absolute=2 * rule.absolute,
        relative=2 * rule.relative,
        non_finite=True,
    )


def measure_beside(peer: OneDnn, trial: Trial, primitive: Primitive, stream: Stream) -> Result:
    """Measure ours and the peer in turns; ours alone where the peer cannot do it."""
    settings = trial.case.settings
    ours = primitive.bind(stream, trial.memories)
    try:
        operation = _prepared(peer, trial, stream)
        theirs = operation.bind()
    except Unimplemented as error:
        refused = PeerResult(peer.name, refusal=str(error))
        alone = Measured(timed_runs(ours, settings))
        return Result(State.EXECUTED, measured=alone, peer=refused)
    times, peer_times = in_turns((ours, theirs), settings)
    measured = PeerResult(peer.name, operation.impl_info, measured=Measured(peer_times))
    return Result(State.EXECUTED, measured=Measured(times), peer=measured)


def _prepared(peer: OneDnn, trial: Trial, stream: Stream) -> PeerOperation:
    """The peer's operation with the contents that ours has."""
    if trial.pd.dst_desc.has_zero_dim:
        raise Unimplemented("a tensor without elements is not passed on")
    operation = peer.make(trial.asked, trial.attr, stream.num_threads)
    values: dict[int, Array] = {**trial.inputs, **trial.parameters.values}
    if trial.previous is not None:
        values[Arg.DST] = np.asarray(trial.previous)
    operation.load(values, trial.parameters.descs)
    return operation
