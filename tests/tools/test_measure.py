"""Taking turns, the statistics of what was measured, and the limits of the machine."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dnnl import DataType, Engine
from dnnl.codegen.compile import jit
from dnnl.codegen.isa import find
from dnnl.codegen.product.multiply import multiply
from dnnl.primitives.peak import PeakConf, build_peak
from dnnl.tools import measure as timing
from dnnl.tools.bench.comparison import effort
from dnnl.tools.bench.settings import Settings
from dnnl.tools.machine import peak, peaks
from dnnl.tools.measure import Contender, Effort, Measurement, Queue, measure


class Clock:
    """Time that passes only where somebody works or rests."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[str] = []

    def work(self, name: str, seconds: Callable[[], float]) -> Callable[[], None]:
        def run() -> None:
            self.calls.append(name)
            self.now += seconds()

        return run

    def rest(self, seconds: float) -> None:
        self.calls.append("rest")
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(timing, "perf_counter", lambda: made.now)
    monkeypatch.setattr(timing, "sleep", made.rest)
    return made


def measurement(**samples: list[list[float]]) -> Measurement:
    return Measurement(samples, dict.fromkeys(samples, 6.0))


def test_statistics_of_one() -> None:
    found = measurement(a=[[1.0, 9.0, 2.0], [3.0], [4.0, 6.0]])
    assert found.rounds("a") == [2.0, 3.0, 5.0]
    assert found.median("a") == 3.0
    assert found.best("a") == 1.0
    assert found.rate("a") == 2.0
    assert found.best_rate("a") == 6.0


def test_a_drift_cancels_in_ratios() -> None:
    found = measurement(a=[[1.0], [4.0], [2.0]], b=[[2.0], [8.0], [4.0]])
    assert found.relative("a", "b") == 2.0
    assert found.relative("b", "a") == 0.5
    assert found.relative("a", "a") == 1.0
    assert found.difference("b", "a") == 2.0


def test_ratios_compare_work_and_not_calls() -> None:
    found = Measurement({"a": [[2.0]], "b": [[1.0]]}, {"a": 30.0, "b": 10.0})
    assert found.relative("a", "b") == 1.5


def test_one_bad_round_changes_no_ratio() -> None:
    found = measurement(a=[[1.0], [50.0], [1.0]], b=[[2.0], [2.0], [2.0]])
    assert found.relative("a", "b") == 2.0


def test_everybody_has_a_turn_in_each_round_and_begins_in_turn(clock: Clock) -> None:
    contenders = [Contender(name, clock.work(name, lambda: 1.0)) for name in "abc"]
    found = measure(contenders, Effort(rounds=4, turn=0.5, rest=0.0))
    warm = clock.calls.index("rest")
    order = "".join(name for name in clock.calls[warm:] if name != "rest")
    assert order == "abc" + "bca" + "cab" + "abc"
    assert {name: len(found.rounds(name)) for name in "abc"} == {"a": 4, "b": 4, "c": 4}


def test_a_turn_lasts_as_long_as_asked(clock: Clock) -> None:
    found = measure([Contender("a", clock.work("a", lambda: 0.01))], Effort(2, 0.055, 0.0))
    assert [len(turn) for turn in found.samples["a"]] == [6, 6]
    assert found.median("a") == pytest.approx(0.01)


def test_short_calls_are_repeated_within_a_sample(clock: Clock) -> None:
    found = measure([Contender("a", clock.work("a", lambda: 1e-6))], Effort(1, 1e-3, 0.0))
    assert found.median("a") == pytest.approx(1e-6)
    assert len(found.samples["a"][0]) <= 11


def test_a_slow_machine_slows_all(clock: Clock) -> None:
    def slowness() -> float:
        return 2.0 if clock.now > 20 else 1.0

    contenders = [
        Contender("a", clock.work("a", lambda: 0.5 * slowness())),
        Contender("b", clock.work("b", lambda: 1.0 * slowness())),
    ]
    found = measure(contenders, Effort(rounds=20, turn=0.1, rest=0.0))
    assert max(found.rounds("a")) == 2 * min(found.rounds("a"))
    assert found.relative("a", "b") == pytest.approx(2.0)


def test_who_runs_alone_need_not_rest(clock: Clock) -> None:
    measure([Contender("a", clock.work("a", lambda: 0.01))], Effort(2, 0.055))
    assert "rest" not in clock.calls


@pytest.mark.parametrize("calls", [1, 2, 7])
def test_so_many_calls_count_as_asked(clock: Clock, calls: int) -> None:
    contenders = [Contender(name, clock.work(name, lambda: 1e-6)) for name in "ab"]
    asked = effort(Settings(fix_times=calls))
    found = measure(contenders, asked)
    assert [len(found.every(name)) for name in "ab"] == [calls, calls]
    assert len(clock.calls) - clock.calls.count("rest") == 2 * (2 + asked.rounds + calls)


def test_the_time_of_a_case_is_shared_by_its_rounds(clock: Clock) -> None:
    asked = effort(Settings(max_ms=75))
    found = measure([Contender("a", clock.work("a", lambda: 0.01))], asked)
    assert [len(turn) for turn in found.samples["a"]] == [2] * 5
    slow = measure([Contender("a", clock.work("a", lambda: 1.0))], asked)
    assert [len(turn) for turn in slow.samples["a"]] == [1] * 5


def test_queued_work_is_waited_for_in_batches_less_what_a_start_takes(clock: Clock) -> None:
    """A call takes 3 us of start and 2 of work, and each wait 10 more."""
    queue = Queue(clock.work("wait", lambda: 1e-5), clock.work("start", lambda: 3e-6))
    queued = Contender("a", clock.work("a", lambda: 1e-5), queue=queue)
    found = measure([queued, Contender("b", clock.work("b", lambda: 1e-3))], Effort(2, 1e-3, 0.0))
    assert found.every("a") == pytest.approx([7e-6] * len(found.every("a")))
    assert found.starts == {"a": pytest.approx(3e-6 + 1e-5 / 64)}
    assert clock.calls.count("a") / clock.calls.count("wait") > 5
    assert found.sifted() == (found, {})
    short = Contender("a", clock.work("a", lambda: 8e-6), queue=queue)
    found, hidden = measure(
        [short, Contender("b", clock.work("b", lambda: 1e-3))], Effort(1, 1e-4, 0.0)
    ).sifted()
    assert list(found.samples) == ["b"]
    assert hidden == {"a": "its work takes less than twice the 3.2 us of a start"}


@pytest.mark.parametrize("calls", [1, 70])
def test_so_many_queued_calls_share_samples(clock: Clock, calls: int) -> None:
    queue = Queue(clock.work("wait", lambda: 1e-5), clock.work("start", lambda: 0.0))
    queued = Contender("a", clock.work("a", lambda: 1e-4), queue=queue)
    found = measure([queued], Effort(1, 0.0, 0.0, calls=calls))
    assert len(found.every("a")) == (1 if calls == 1 else 2)
    assert found.every("a") == pytest.approx([1e-4] * len(found.every("a")), rel=0.02)


def test_peaks_grow_with_narrow_types() -> None:
    engine = Engine("cpu")
    found = measure(list(peaks(engine, 1).values()), Effort(3, 0.01))
    rates = {name: found.best_rate(name) for name in found.samples}
    assert all(rate > 1.2 * rates["f32"] for name, rate in rates.items() if name != "f32")
    assert peak(engine, 2).work == 2 * peak(engine, 1).work


@pytest.mark.parametrize(
    ("isa", "src", "weights", "instruction"),
    [
        ("avx512_core_bf16", "bf16", "bf16", "vdpbf16ps"),
        ("avx512_core_vnni", "u8", "s8", "vpdpbusd"),
        ("avx512_core", "u8", "s8", "vpmaddwd"),
        ("avx2_vnni", "u8", "s8", "vpdpbusd"),
        ("avx2", "f32", "f32", "vfmadd"),
        ("sse41", "f32", "f32", "mulps"),
    ],
)
def test_every_step_of_a_peak_is_an_instruction(
    isa: str, src: str, weights: str, instruction: str
) -> None:
    row, sums = find(isa), 8
    how = multiply(row, DataType[src], DataType[weights])
    assert how is not None
    kernel = build_peak(PeakConf(1, sums, 10, how), row)
    assembly = jit.assembly(kernel.module)
    assert sum(instruction in line for line in assembly.splitlines()) == sums * how.parts


def test_runs_until_threads_and_caches_are_warm_do_not_count(clock: Clock) -> None:
    def seconds() -> float:
        """The first three calls after a rest are slow."""
        return 0.010 if "rest" in clock.calls[-4:] else 0.001

    both = [Contender(name, clock.work(name, seconds)) for name in "ab"]
    found = measure(both, Effort(2, 0.0, calls=5, warm_up=0.025))
    for name in "ab":
        assert found.every(name) == pytest.approx([0.001] * 5)
    assert max(measure(both, Effort(2, 0.0, calls=5)).every("a")) == pytest.approx(0.010)
