"""The first SYCL device beside the engine cpu: kernels, launches, a network and its preparation.

The results of both are compared with the reference before they are measured.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from bench import summary
from bench.contest import Contest, WrongResult, read
from bench.context import SEED, Context
from bench.models import JUDGED, light_model
from bench.preparation import seconds_in_process
from bench.report import Column, Report, Row, Target
from bench.summary import Limit
from dnnl import Engine
from dnnl.tools.measure import Contender, measure

CPU, DEVICE, RATIO = "cpu", "sycl", "ratio"
MEMORY = (
    ("eltwise", "--alg=relu", "256x4096"),
    ("eltwise", "--alg=gelu_erf", "256x4096"),
    ("eltwise", "--alg=tanh", "--dt=bf16", "2048x4096"),
    ("binary", "--alg=add", "256x4096:256x4096"),
    ("binary", "--alg=mul", "2048x4096:1x4096"),
    ("reorder", "--stag=ab", "--dtag=ba", "1024x1024"),
    ("reorder", "--stag=abcd", "--dtag=acdb", "8x64x112x112"),
    ("reorder", "--sdt=f32", "--ddt=s8", "--attr-scales=dst:common:0.5", "256x4096"),
    ("softmax", "--axis=1", "256x4096"),
    ("softmax", "--axis=1", "8192x1024"),
    ("lnorm", "--flags=CH", "256x4096"),
    ("lnorm", "--flags=CH", "8192x768"),
    ("reduction", "--alg=sum", "256x4096:256x1"),
    ("reduction", "--alg=sum", "256x4096:1x4096"),
    ("reduction", "--alg=max", "8192x4096:8192x1"),
    ("pool", "--alg=max", "--tag=axb", "mb8ic64ih112oh56kh3sh2ph1"),
)
"""Of 4 MiB and more."""
PRODUCTS = (
    ("matmul", "256x256:256x256"),
    ("matmul", "--wtag=any", "128x768:768x3072"),
    ("matmul", "1024x1024:1024x1024"),
    ("matmul", "12x128x64:12x64x128"),
    ("ip", "--dir=FWD_I", "--stag=any", "--wtag=any", "mb32ic2048oc1000"),
    ("conv", "--dir=FWD_I", "ic64ih56oc64oh56kh3ph1"),
    ("conv", "--dir=FWD_I", "ic64ih56oc256oh56kh1ph0"),
    ("conv", "--dir=FWD_I", "ic3ih224oc64oh112kh7sh2ph3"),
    ("conv", "--dir=FWD_I", "--stag=axb", "--dtag=axb", "g32ic32ih112oc32oh112kh3ph1"),
)
"""Of f32."""
_UNSAID = frozenset(("--dir=FWD_I",))
SMALL = ("eltwise", "--alg=relu", "16")
TEN = 10

COLUMNS = (
    Column("case", "case"),
    Column("mib", "MiB", ".1f"),
    Column(CPU, "cpu us", ".0f"),
    Column(DEVICE, "sycl us", ".0f"),
    Column(RATIO, "cpu / sycl", ".2f"),
)
NOTE = "Best times of one execution and its wait. cpu / sycl: the device's speed in units of cpu's."
OTHER_COLUMNS = (
    Column("what", "what"),
    Column(CPU, "cpu", ".1f"),
    Column(DEVICE, "sycl", ".1f"),
    Column("unit", "unit"),
)
OTHER_NOTE = (
    "Launches: of eltwise with 16 elements, until it is done. Preparation: the first, in a process "
    "of its own without kernels on disk."
)


def run(context: Context, report: Report) -> None:
    """A table for each kind of kernel, and one for launches and a network."""
    if not Engine.count(DEVICE):
        report.add("SYCL device", "There is none.", COLUMNS, [])
        return
    name = Engine(DEVICE).backend.description
    for kind, cases, least in (("memory-bound", MEMORY, 0.7), ("products", PRODUCTS, 0.4)):
        rows = [_row(context, driver, options) for driver, *options in cases]
        limit = Limit(RATIO, "speed of the engine cpu", mean=least)
        summary.add(context, report, f"{kind} on {name}", NOTE, COLUMNS, rows, [limit])
    rows, targets = [], []
    for measured in (*_launches(context), *_network(context)):
        rows.append(measured.row)
        targets.append(measured.target)
    report.add(f"launches and {JUDGED} on {name}", OTHER_NOTE, OTHER_COLUMNS, rows, targets)


class _Measured(NamedTuple):
    """Times by engine, and the most of the device's, in units of cpu's if that has a time."""

    what: str
    times: Mapping[str, float]
    unit: str
    most: float

    @property
    def row(self) -> Row:
        return {"what": self.what, CPU: None, **self.times, "unit": self.unit}

    @property
    def target(self) -> Target:
        own, of_cpu = self.times[DEVICE], self.times.get(CPU)
        if of_cpu is None:
            name, value, unit = f"{self.what}, sycl", own, f" {self.unit}"
        else:
            name, value, unit = f"{self.what}, sycl / cpu", own / of_cpu, ""
        return Target(name, value, self.most, at_least=False, unit=unit)


def _row(context: Context, driver: str, options: Sequence[str]) -> Row:
    calls, mib = {}, 0.0
    for kind in (CPU, DEVICE):
        (case,) = read(driver, f"--engine={kind}", *options)
        contest = Contest(context, case, context.threads[-1])
        calls[kind], mib = _waited(contest), contest.bytes / 2**20
    best = _best(context, calls)
    name = " ".join((driver, *(text for text in options if text not in _UNSAID)))
    ratio = best[CPU] / best[DEVICE]
    return {"case": name, "mib": mib, RATIO: ratio, **{kind: best[kind] * 1e6 for kind in best}}


def _waited(contest: Contest) -> Callable[[], object]:
    """A bound execution, to its end."""
    bound, wait = contest.bind(), contest.stream.wait

    def call() -> None:
        bound()
        wait()

    return call


def _best(context: Context, calls: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """The least seconds of each call."""
    contenders = [Contender(name, call) for name, call in calls.items()]
    result = measure(contenders, context.effort(rounds=9, turn=0.03))
    return {name: result.best(name) for name in calls}


def _launches(context: Context) -> Iterator[_Measured]:
    """Single launches and bound sequences, with the most microseconds that they should take."""
    driver, *options = SMALL
    (case,) = read(driver, f"--engine={DEVICE}", *options)
    contest = Contest(context, case, context.threads[-1])
    bound, wait = contest.bind(), contest.stream.wait

    def single() -> None:
        contest.primitive.execute(contest.stream, contest.memories)
        wait()

    def sequence() -> None:
        for _ in range(TEN):
            bound()
        wait()

    best = _best(context, {"single": single, "sequence": sequence})
    yield _Measured("a launch", {DEVICE: best["single"] * 1e6}, "us", 20.0)
    yield _Measured(f"{TEN} bound launches", {DEVICE: best["sequence"] * 1e6}, "us", 60.0)


def _network(context: Context) -> Iterator[_Measured]:
    """A network and its preparation, with the most that they should take in units of cpu."""
    model = light_model(JUDGED).with_batch(1).with_random_weights(SEED)
    rng = np.random.default_rng(SEED)
    feeds = {
        name: rng.standard_normal(value.sizes, np.float32) for name, value in model.inputs.items()
    }
    sessions = {kind: model.compile(Engine(kind)) for kind in (CPU, DEVICE)}
    results = [session.run(feeds) for session in sessions.values()]
    for name, expected in results[0].items():
        if not np.allclose(results[1][name], expected, 1e-3, 1e-6):
            raise WrongResult(f"{name} of {JUDGED} differs between the engines")
    calls = {kind: partial(session.run, feeds) for kind, session in sessions.items()}
    best = {kind: seconds * 1e3 for kind, seconds in _best(context, calls).items()}
    yield _Measured(f"{JUDGED}, batch 1", best, "ms", 1 / 0.35)
    with tempfile.TemporaryDirectory(prefix="dnnl-bench-") as folder:
        first = {kind: seconds_in_process(f"{folder}/{kind}", kind) for kind in (CPU, DEVICE)}
    yield _Measured(f"preparation of {JUDGED}", first, "s", 3.0)
