"""Cases that are right before they are timed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bench.contest import OURS, Contest, WrongResult, read
from bench.context import Context
from bench.peers import ONEDNN, Peers
from dnnl import Arg, Engine, Unimplemented
from dnnl.reference.arrays import Array, f64
from dnnl.tools.bench.trial import Trial
from dnnl.tools.measure import Effort


class Doubling:
    """A peer whose results are ours times ``factor``; it refuses matrices of one row."""

    name = "doubling 1.0"
    queue = None
    impl_info = "any:any"

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.src: Any = None

    def make(self, desc: Any, *_: object) -> Doubling:
        if desc.src_desc.dims[0] == 1:
            raise Unimplemented("one row")
        return self

    def load(self, values: Any, _: object) -> None:
        self.src = values[Arg.SRC]

    def bind(self) -> Any:
        return lambda: None

    def read(self, argument: int) -> Array:
        return f64(np.maximum(self.src, 0) * self.factor)

    def deviation(self, exact: Array) -> None:
        return None


def context(factor: float) -> Context:
    peers = Peers({ONEDNN: Doubling(factor)}, {}, {})  # type: ignore[dict-item]
    return Context(Engine("cpu"), peers, (1,), True)


def relu(problem: str) -> Any:
    (case,) = read("eltwise", "--dir=FWD_I", "--alg=relu", "--tag=abx", problem)
    return case


def test_ours_and_a_peer_take_turns() -> None:
    contest = Contest(context(1.0), relu("3x5"), 1, (ONEDNN,))
    assert contest.work == contest.bytes == 2 * 3 * 5 * 4
    found = contest.measure(Effort(2, 0.001, 0.0))
    assert set(found.samples) == {OURS, ONEDNN}
    assert contest.described() == {"impl": contest.pd.impl_info, "peer_impl": "any:any"}


def test_a_peer_that_refuses_or_is_missing_does_not_run() -> None:
    refused = Contest(context(1.0), relu("1x5"), 1, (ONEDNN, "another"))
    assert set(refused.measure(Effort(1, 0.001)).samples) == {OURS}
    assert refused.described()["refusal"] == "one row"


def test_work_is_counted_where_there_are_products() -> None:
    (case,) = read("matmul", "--stag=ab", "--wtag=ab", "--dtag=ab", "3x4:4x5")
    assert Contest(context(1.0), case, 1).work == 2 * 3 * 4 * 5


def test_what_a_peer_has_otherwise_is_never_timed() -> None:
    with pytest.raises(WrongResult, match=r"--eltwise .*3x5: \d+ of 15 elements .* oneDNN"):
        Contest(context(2.0), relu("3x5"), 1, (ONEDNN,))


def test_what_is_wrong_is_never_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Trial.place

    def spoil(self: Trial) -> None:
        place(self)
        self.memories[Arg.SRC].data[:] = 0

    monkeypatch.setattr(Trial, "place", spoil)
    with pytest.raises(WrongResult, match="elements differ from the reference"):
        Contest(context(1.0), relu("3x5"), 1)


def test_what_the_library_has_not_is_told() -> None:
    (case,) = read("zeropad", "3x5")
    with pytest.raises(Unimplemented, match="no primitive for --zeropad"):
        Contest(context(1.0), case, 1)
