"""A case of the language, ready to be timed: ours and peers on the same contents, all right."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.context import Context
from bench.peers import ONEDNN
from bench.report import Row
from dnnl import Primitive, PrimitiveDesc, Stream, Unimplemented
from dnnl.tools.bench.cases import Case, Interpreter
from dnnl.tools.bench.comparison import OURS, oppose
from dnnl.tools.bench.creation import at_execution, create
from dnnl.tools.bench.drivers import description
from dnnl.tools.bench.trial import Trial
from dnnl.tools.measure import Contender, Effort, Measurement, measure

__all__ = ["OURS", "Contest", "WrongResult", "read"]


class WrongResult(Exception):
    """A result differs from the reference, or from a peer's."""


def read(driver: str, *tokens: str) -> list[Case]:
    """The cases of a driver's options and problems, as ``dnnl bench`` reads them."""
    return list(Interpreter().cases([f"--{driver}", *tokens]))


class Contest:
    """One case on so many threads here and on those of ``peers`` that are there and can do it.

    The work of a run is its multiplications and additions, or the bytes of its tensors where the
    operation counts none. Raises Unimplemented where we cannot do the case, WrongResult where
    our result is not the reference's, or not that of a peer.
    """

    def __init__(
        self, context: Context, case: Case, num_threads: int, peers: Sequence[str] = ()
    ) -> None:
        kind = description(case.driver)
        if kind is None:
            raise Unimplemented(f"no primitive for --{case.driver.name}")
        created = create(case, kind)
        self.pd: PrimitiveDesc = created.pd
        self.primitive = Primitive(self.pd)
        self.stream = Stream(self.pd.engine, num_threads)
        sized = at_execution(case, kind, created)
        trial = Trial(case, created, sized)
        trial.fill(bitwise=False)
        trial.place()
        self.memories = trial.memories
        tensors = sized.desc.tensors
        self.bytes = sum(tensor.desc.size for tensor in tensors)
        self.work = float(kind.operation.flops(sized.desc) or self.bytes)
        self.opponents = {}
        self.refusals: dict[str, str] = {}
        self.primitive.execute(self.stream, self.memories)
        expected = trial.expect()
        verdicts = {"the reference": trial.judge(expected)}
        for name in peers:
            peer = context.peers.libraries.get(name)
            try:
                if peer is not None:
                    self.opponents[name] = oppose(peer, trial, self.stream)
                    verdicts[name], _ = self.opponents[name].judge(trial, expected)
            except Unimplemented as error:
                self.refusals[name] = str(error)
        for name, verdict in verdicts.items():
            if verdict.errors:
                what = f"{verdict.errors} of {verdict.total} elements differ from {name}"
                raise WrongResult(
                    "\n".join([f"--{case.driver.name} {case.line}: {what}", *verdict.lines])
                )

    def bind(self) -> Callable[[], object]:
        """One execution of ours per call."""
        return self.primitive.bind(self.stream, self.memories)

    @property
    def theirs(self) -> list[Contender]:
        """The peers, which can run as long as this lives."""
        return [each.contender(name, self.work) for name, each in self.opponents.items()]

    def measure(self, effort: Effort, *others: Contender) -> Measurement:
        """Measure ours, ``others`` and the peers alternately."""
        return self.compare([Contender(OURS, self.bind(), self.work), *others], effort)

    def compare(self, contenders: Sequence[Contender], effort: Effort) -> Measurement:
        """Time contenders and the peers alternately; a peer whose queue hides its work is none."""
        result, hidden = measure([*contenders, *self.theirs], effort).sifted()
        self.refusals.update(hidden)
        return result

    def described(self, peer: str = ONEDNN) -> Row:
        """What a row says of implementations: ours, and the peer's or why it has no figures."""
        row = {"impl": self.pd.impl_info}
        if peer in self.refusals:
            row |= {"peer_impl": "refuses", "refusal": self.refusals[peer]}
        if peer in self.opponents:
            row["peer_impl"] = self.opponents[peer].impl_info
        return row
