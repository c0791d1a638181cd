"""A case compared with a peer: a second reference in mode C, a second time in mode P."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dnnl.errors import Unimplemented
from dnnl.primitives.primitive import Primitive
from dnnl.reference.arrays import Array, f64
from dnnl.reference.rule import SMALL, Rule, Verdict, compare
from dnnl.runtime.event import COMPLETE, Event
from dnnl.runtime.stream import Stream
from dnnl.tools.bench.compensation import judge_sums
from dnnl.tools.bench.peers.base import Peer, PeerOperation
from dnnl.tools.bench.result import PeerResult, Result, State
from dnnl.tools.bench.settings import Settings
from dnnl.tools.bench.template import Measured
from dnnl.tools.bench.trial import Expected, Trial
from dnnl.tools.measure import Contender, Effort, Measurement, Queue, measure
from dnnl.types.arg import Arg, name_of
from dnnl.types.dtype import DataType

OURS = "dnnl"
_ROUNDS = 5


@dataclass(frozen=True)
class Opponent:
    """A peer that does a case on the contents that ours has, executed once.

    ``run`` executes again as long as this lives, to the end where there is no ``queue``.
    """

    name: str
    operation: PeerOperation
    run: Callable[[], object]
    queue: Queue | None = None

    @property
    def impl_info(self) -> str:
        """The peer's implementation."""
        return self.operation.impl_info

    def contender(self, name: str, work: float = 1.0) -> Contender:
        """What is timed of it."""
        return Contender(name, self.run, work, self.queue)

    def judge(self, trial: Trial, expected: Expected) -> tuple[Verdict, str]:
        """The verdict on our outputs by those of the peer, and what was left out of it since the
        peer is known to differ there.

        Both may be off the reference, so that twice as much is accepted, and the peer may have
        lost the digits of small values, so that these count absolutely.
        """
        verdict, differs = Verdict(0, 0, False), ""
        for tensor in trial.desc.outputs:
            if tensor.argument == Arg.WORKSPACE:
                continue  # each library has its own
            own, reason = _judge(self.operation, trial, tensor.argument, expected)
            verdict, differs = verdict.and_also(own), differs or reason
        return verdict, differs


def oppose(peer: Peer, trial: Trial, stream: Stream) -> Opponent:
    """The case of ``trial`` on a peer; raises Unimplemented where it has no equal."""
    if trial.result.desc.has_zero_dim:
        raise Unimplemented("a tensor without elements is not passed on")
    is_open = any(tensor.desc.has_runtime_values for tensor in trial.asked.tensors)
    known = trial.desc if is_open else None
    operation = peer.make(trial.asked, trial.attr, stream.num_threads, known, trial.forward)
    values: dict[int, Array] = {**trial.earlier, **trial.inputs, **trial.parameters.values}
    if trial.previous is not None:
        values[trial.result.argument] = np.asarray(trial.previous)
    operation.load(values, trial.parameters.descs)
    return Opponent(peer.name, operation, operation.bind(), peer.queue)


def check_peers(
    peers: Sequence[Peer],
    trial: Trial,
    stream: Stream,
    expected: Expected,
    result: Result,
) -> None:
    """Compare right results with those of peers, and note in ``result`` what came of it."""
    for peer in peers:
        try:
            opponent = oppose(peer, trial, stream)
        except Unimplemented as error:
            result.peers.append(PeerResult(peer.name, refusal=str(error)))
            continue
        verdict, differs = opponent.judge(trial, expected)
        result.peers.append(PeerResult(peer.name, opponent.impl_info, differs=differs))
        if verdict.errors:
            result.state = State.FAILED
            result.errors, result.total = verdict.errors, verdict.total
            right = f"right by the reference, but not as {peer.name} has it"
            result.lines = (*result.lines, *verdict.lines, right)


def measure_peers(
    peers: Sequence[Peer], trial: Trial, primitive: Primitive, stream: Stream
) -> Result:
    """Measure ours and those peers that can do it, alternately."""
    contenders = [_own(primitive.bind(stream, trial.memories))]
    opponents: list[Opponent] = []
    found: list[PeerResult] = []
    for peer in peers:
        try:
            opponent = oppose(peer, trial, stream)
        except Unimplemented as error:
            found.append(PeerResult(peer.name, refusal=str(error)))
        else:
            opponents.append(opponent)
            found.append(PeerResult(peer.name, opponent.impl_info))
    contenders += [opponent.contender(opponent.name) for opponent in opponents]
    times, hidden = measure(contenders, effort(trial.case.settings)).sifted()
    timed = [_timed(item, times, hidden) for item in found]
    return Result(State.EXECUTED, measured=_measured(times, OURS), peers=timed)


def _own(run: Callable[..., Event]) -> Contender:
    """What is timed of ours: by a clock of the device, or else by ours until the end."""
    event = run()
    if event is COMPLETE:
        return Contender(OURS, run)
    event.wait()
    if event.seconds is None:
        return Contender(OURS, lambda: run().wait())
    return Contender(OURS, run, timed=lambda: _on_device(run()))


def _on_device(event: Event) -> float:
    event.wait()
    return event.seconds or 0.0


def _timed(item: PeerResult, times: Measurement, hidden: Mapping[str, str]) -> PeerResult:
    if item.refusal:
        return item
    if item.name in hidden:
        return replace(item, refusal=hidden[item.name])
    return replace(item, measured=_measured(times, item.name))


def effort(settings: Settings) -> Effort:
    """The time, or the number of calls, that the options of a run give to each contender."""
    rounds = min(settings.fix_times or _ROUNDS, _ROUNDS)
    return Effort(rounds, settings.max_ms / 1e3 / rounds, calls=settings.fix_times)


def _measured(times: Measurement, name: str) -> Measured:
    return Measured(tuple(1e3 * seconds for seconds in times.every(name)))


def _judge(
    operation: PeerOperation, trial: Trial, argument: int, expected: Expected
) -> tuple[Verdict, str]:
    """The verdict on an output by that of the peer, and what was left out of it since the peer is
    known to differ there."""
    memory, name = trial.memories[argument], name_of(argument)
    rule = _doubled(trial.rule(argument, expected.inputs))
    got, want = f64(memory.numpy()), operation.read(argument)
    kind = memory.desc.data_type
    core = DataType.f64 if kind in (DataType.f64, DataType.s32) else DataType.f32
    verdict = compare(name, got, want, kind, core, rule)
    deviation = operation.deviation(expected.outputs[argument]) if verdict.errors else None
    reason = ""
    if deviation is not None:
        rest = compare(name, got, want, kind, core, replace(rule, anything_at=deviation.at))
        count = verdict.errors - rest.errors
        verdict, reason = rest, f"{deviation.reason} ({count} elements)" if count else ""
    if memory.desc.compensation is not None:
        for sums in judge_sums(memory, operation.sums):
            verdict = verdict.with_errors(sums.errors, sums.lines)
    return verdict, reason


def _doubled(rule: Rule) -> Rule:
    return replace(
        rule,
        threshold=2 * rule.threshold,
        slack=max(2 * rule.slack, SMALL),
        absolute=2 * rule.absolute,
        relative=2 * rule.relative,
        non_finite=True,
    )
