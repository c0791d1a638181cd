"""The search itself: what breaks is found, made small, told apart and printed."""

from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import replace
from inspect import getattr_static, isclass, isfunction, signature
from pathlib import Path
from time import monotonic, sleep

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

import dnnl
from dnnl import config
from dnnl.primitives.registry import OPERATIONS
from dnnl.tools.bench.cases import Interpreter
from dnnl.tools.bench.trial import Expected, Trial
from tests.fuzz import breaking, primitives
from tests.fuzz.__main__ import main
from tests.fuzz.call_table import calls
from tests.fuzz.calls import World, call_text
from tests.fuzz.campaign import Campaign, Finding
from tests.fuzz.kind import Kind, Outcome, State
from tests.fuzz.kinds import KINDS
from tests.fuzz.layouts import MARK
from tests.fuzz.problems import unknown_options
from tests.fuzz.report import Report, keep, regressions
from tests.fuzz.worker import Worker, attempt

FOREVER = float("inf")


def search(kind: Kind, seed: int = 0) -> tuple[Campaign, list[Finding]]:
    """Rounds in this process, until there is a finding."""
    found: list[Finding] = []
    campaign = Campaign([kind], seed, found.append)
    while not found:
        campaign.round(kind, lambda text, _: attempt(kind, text), FOREVER)
    return campaign, found


def test_a_failure_is_made_small_and_counted() -> None:
    campaign, found = search(breaking.KIND)
    assert [finding.line for finding in found] == ["breaking large:100"]
    assert campaign.failed
    for _ in range(9):
        campaign.round(breaking.KIND, lambda text, _: attempt(breaking.KIND, text), FOREVER)
    assert len(found) == 1  # a reason that is known
    assert campaign.tallies["breaking"].states[State.FAILED] > 1


def test_a_seed_gives_the_same_cases() -> None:
    def texts(seed: int) -> list[str]:
        seen: list[str] = []

        def run(text: str, _: float) -> Outcome:
            seen.append(text)
            return attempt(breaking.KIND, text)

        campaign = Campaign([breaking.KIND], seed)
        for _ in range(9):
            campaign.round(breaking.KIND, run, FOREVER)
        return seen

    assert texts(1) == texts(1) != texts(2)


@pytest.mark.parametrize("name", OPERATIONS)
@settings(max_examples=5, database=None, deadline=None)
@given(data=st.data())
def test_cases_of_every_operation_are_drawn(name: str, data: st.DataObject) -> None:
    line = data.draw(primitives.lines([name]))
    words = [word for word in line.split(" ")[3:] if not word.startswith(MARK)]
    (case,) = Interpreter().cases(words)
    assert case.driver is OPERATIONS[name].operation.driver


def test_what_cannot_be_drawn_is_a_finding_and_the_search_goes_on() -> None:
    kind = replace(breaking.KIND, cases=lambda: st.integers().map(lambda n: str(n // 0)))
    found: list[Finding] = []
    campaign = Campaign([kind], 0, found.append)
    for _ in range(3):
        campaign.round(kind, lambda text, _: attempt(kind, text), FOREVER)
    (finding,) = found
    assert campaign.tallies["breaking"].states[State.FAILED] == 3
    assert (finding.line, finding.repeatable) == ("breaking drawing", False)
    assert finding.outcome.reason == "ZeroDivisionError at test_search.py <lambda>"
    text = io.StringIO()
    Report(Console(file=text, width=80)).show(finding)
    assert "--case" not in text.getvalue()


def test_a_wrong_tail_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of more than two elements end with another number than they should."""
    right = Trial.expect

    def wrong(self: Trial) -> Expected:
        expected = right(self)
        for array in expected.outputs.values():
            if array.ndim and array.shape[-1] > 2:
                array[..., -1] += 1
        return expected

    monkeypatch.setattr(Trial, "expect", wrong)
    kind = Kind(
        "primitive", "", lambda: primitives.lines(["sum"]), primitives.KIND.run, primitives.__name__
    )
    _, (finding,) = search(kind)
    level, caches, threads, *tokens = finding.text.split(" ")
    assert (level, caches, threads, tokens[0]) == ("default", "real", "2", "--sum")
    assert tokens[-1] == "3"
    assert not [token for token in tokens if token.startswith(("--attr", "--dtag"))]
    text = io.StringIO()
    Report(Console(file=text, width=80)).show(finding)
    assert f"python -m tests.fuzz --case 'primitive {finding.text}'" in text.getvalue()
    assert f"\n    dnnl bench {' '.join(tokens)}\n" in text.getvalue()


@pytest.mark.parametrize(
    ("text", "reason"),
    [("crash", "crash: SIGSEGV"), ("exit", "crash: exit status 3"), ("hang", "hang")],
)
def test_the_end_of_a_process_is_blamed_on_its_case(text: str, reason: str) -> None:
    with Worker(breaking.KIND) as worker:
        assert worker.run("large:1") == Outcome(State.PASSED)
        broken = worker.run(text)
        assert broken is not None
        assert (broken.state, broken.reason) == (State.FAILED, reason)
        assert "breaking.py" in broken.detail or text == "exit"
        assert worker.run("large:1") == Outcome(State.PASSED)


def test_other_outcomes_come_back_as_they_are() -> None:
    with Worker(breaking.KIND) as worker:
        assert worker.run("print") == Outcome(State.PASSED)
        assert worker.run("refuse") == Outcome(State.REFUSED, "a rule")
        raised = worker.run("raise")
        assert raised is not None
        assert raised.reason == "LookupError at breaking.py _run"
        assert "nothing" in raised.detail


def test_the_kernels_of_the_user_are_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DNNL_CACHE_DIR", str(tmp_path))
    with Worker(primitives.KIND) as worker:
        assert worker.run("default real 2 --sum 7") == Outcome(State.PASSED)
    assert not [*tmp_path.iterdir()]


_WITHOUT_ROOT = """
import os, sys
from tests.fuzz.caches import KIND
KIND.run("gone")  # imports what nobody else may be able to read
if os.geteuid() == 0:
    os.setegid(65534)
    os.seteuid(65534)
for text in sys.argv[1:]:
    print(KIND.run(text).state.value)
"""


def test_files_are_damaged_without_the_rights_of_root() -> None:
    texts = (
        *("closed gone", "closed file", "closed link", "closed folder", "closed owner"),
        *("mode:000 cut:300", "mode:400 flip:300:4", "mode:000 swap"),
    )
    command = [sys.executable, "-c", _WITHOUT_ROOT, *texts]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    states = ["refused" if "owner" in text else "passed" for text in texts]
    assert ended.stdout.split() == states, ended.stderr


def test_the_time_is_kept() -> None:
    def slow(text: str, until: float) -> Outcome:
        sleep(0.01)
        return Outcome(State.PASSED)

    campaign, started = Campaign([breaking.KIND], 0), monotonic()
    while monotonic() < started + 0.3:
        campaign.round(breaking.KIND, slow, started + 0.3)
    assert monotonic() - started < 2.0
    assert campaign.tallies["breaking"].tried > 0
    with Worker(breaking.KIND) as worker:
        assert worker.run("hang", monotonic() + 0.1) is None


def test_a_case_is_kept_once(tmp_path: Path) -> None:
    path = tmp_path / "regressions.txt"
    path.write_text("# a comment\nknown graph 1\n")
    for line in ("graph 1", "call f()", "call f()"):
        keep(line, path)
    assert regressions(path) == [("graph 1", True), ("call f()", False)]


def test_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "breaking", breaking.KIND)
    shown = CliRunner().invoke(main, ["--case", "breaking raise"])
    assert shown.exit_code == 1
    assert "LookupError" in shown.output
    shown = CliRunner().invoke(main, ["--case", "nothing 1"])
    assert shown.exit_code == 2
    assert "no kinds nothing; there are primitive, " in shown.output
    run = ["--minutes", "0.1", "--no-keep", "--kinds", "breaking"]
    shown = CliRunner().invoke(main, run)
    assert shown.exit_code == 1
    assert "python -m tests.fuzz --case 'breaking large:100'" in shown.output
    assert CliRunner().invoke(main, ["--kinds", "nothing"]).exit_code == 2


def test_every_option_and_every_public_name_is_tried() -> None:
    assert not unknown_options()
    drivers = [desc.operation.driver for desc in OPERATIONS.values()]
    algorithms = [option for driver in drivers for option in driver.options if option.name == "alg"]
    assert all(option.names for option in algorithms)
    tried = {name.partition(".")[0] for name in calls()}
    objects = {"Event": "stream", "get_num_threads": "config"}  # no constructor, no argument
    names = [name for name in dnnl.__all__ if callable(getattr(dnnl, name))]
    others = {"Error", "InvalidArguments", "OutOfMemory", "Unimplemented"}
    others |= {"from_torch", "explain_graph"}  # which tests/torch tries
    assert not {objects.get(name, name) for name in names if name not in others} - tried
    assert not _methods_with_arguments() - calls().keys() - WITHIN - REFUSING


EMPTY = {"md.compensation_desc", "mem.compensation", "attr.post_ops.__getitem__"}
"""Functions that ask objects of the table for what those do not have."""


@pytest.mark.parametrize("name", sorted(calls().keys() - EMPTY))
def test_calls_are_right_before_they_are_changed(name: str) -> None:
    before = dict(config._overrides)
    eval(call_text(name, calls()[name]), {}, World())
    config._overrides.clear()
    config._overrides.update(before)
    config.generation += 1


WITHIN = {
    # They check nothing.
    *("prim.execute_at", "prim.launch", "prim.scratchpad_size", "prim.slots_of", "prim.submitting"),
    *("session.at_addresses", "session.execute", "session.numbers", "session.prepare"),
    *("model.run_async", "session.run_async"),  # whose calls are tried
    "model.save",  # which writes files; tests/framework/test_saved_models.py has wrong ones
    *("md.token", "md.undecided", "pd.engine_of", "pd.with_scratchpad", "pd.with_sizes"),
    *("MemoryDesc.of_layout", "attr.with_layouts", "attr.with_post_ops"),
    *(
        f"engine.{name}"
        for name in ("allocate", "copy", "load", "make_queue", "read", "sized", "write")
    ),
    *("engine.wrap", "engine.share", "Engine.of", "Stream.of"),
    *(f"{kind.__name__}.made" for kind in OPERATIONS.values()),
}
"""What the library calls itself, with what it has checked."""
REFUSING = {
    *(f"{name}Desc.backward_{of}" for name in ("Convolution", "Deconvolution", "InnerProduct")
      for of in ("data", "weights")),
    *("attr", "attr.post_ops", "engine", "md"),
}  # fmt: skip
"""What refuses every call: gradients to come, and properties that are called as methods."""


def _methods_with_arguments() -> set[str]:
    """The public ones of all objects that the table names, and of all classes that are exported."""
    objects, world = {name.rpartition(".")[0] for name in calls()} | {"engine", "event"}, World()
    kinds = {name: type(eval(name, {}, world)) for name in objects if name[:1].islower()}
    kinds |= {name: kind for name in dnnl.__all__ if isclass(kind := getattr(dnnl, name))}
    return {
        f"{name}.{method}".removesuffix(".__call__")
        for name, kind in kinds.items()
        for method in dir(kind)
        if (method == "__call__" or not method.startswith("_"))
        and _takes_arguments(getattr_static(kind, method), of_class=name[0].isupper())
    }


def _takes_arguments(member: object, of_class: bool) -> bool:
    """Whether it is a function of this library that takes more than the object or the class."""
    if isinstance(member, classmethod | staticmethod) != of_class:
        return False
    function = getattr(member, "__func__", member)
    if not isfunction(function) or not function.__module__.startswith("dnnl."):
        return False
    return len(signature(function).parameters) > (not isinstance(member, staticmethod))
