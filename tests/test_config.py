"""The table of knobs: where a value comes from, and what a bad one is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dnnl import config
from dnnl.errors import InvalidArguments


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for knob in config.KNOBS:
        for variable in knob.variables:
            monkeypatch.delenv(variable, raising=False)


def test_every_variable_of_the_contract_is_in_the_table() -> None:
    variables = {variable for knob in config.KNOBS for variable in knob.variables}
    assert variables == {
        "DNNL_VERBOSE",
        "DNNL_VERBOSE_TIMESTAMP",
        "DNNL_VERBOSE_SINK",
        "DNNL_MAX_CPU_ISA",
        "DNNL_NUM_THREADS",
        "OMP_NUM_THREADS",
        "DNNL_OVERSUBSCRIBE",
        "DNNL_CACHE_DIR",
        "DNNL_CACHE_LIMIT",
        "DNNL_PRIMITIVE_CACHE_CAPACITY",
        "DNNL_PRIMITIVE_CACHE_LIMIT",
        "DNNL_SPECIAL_KERNELS",
        "DNNL_WINOGRAD",
        "DNNL_JIT_DUMP",
    }
    assert all(knob.help for knob in config.KNOBS)


def test_defaults() -> None:
    assert config.get("verbose") == "error"
    assert config.get("max_cpu_isa") == "default"
    assert config.get("num_threads") is None
    assert config.get("cache_limit") == 256
    assert config.get("primitive_cache_capacity") == 1024
    assert config.get("jit_dump") is False
    assert config.get("cache_dir").name == "dnnl"


def test_the_environment_is_read_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, value in (("7", 7), ("0", 0), ("", 1024)):
        monkeypatch.setenv("DNNL_PRIMITIVE_CACHE_CAPACITY", text)
        assert config.get("primitive_cache_capacity") == value


def test_variables_count_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3,2")
    assert config.get("num_threads") == 3
    monkeypatch.setenv("DNNL_NUM_THREADS", "5")
    assert config.get("num_threads") == 5


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    [
        ("DNNL_MAX_CPU_ISA", " AVX2 ", "avx2"),
        ("DNNL_CACHE_DIR", "/some/where", Path("/some/where")),
        ("DNNL_JIT_DUMP", "1", True),
        ("DNNL_JIT_DUMP", "off", False),
        ("DNNL_VERBOSE", "all,filter=Conv", "all,filter=Conv"),
    ],
)
def test_texts_become_values(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, value: object
) -> None:
    monkeypatch.setenv(variable, text)
    (knob,) = (knob for knob in config.KNOBS if variable in knob.variables)
    assert config.get(knob.name) == value


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        ("DNNL_NUM_THREADS", "0", config.NUM_THREADS_RULE),
        ("DNNL_NUM_THREADS", "99999999999999999999", config.NUM_THREADS_RULE),
        ("OMP_NUM_THREADS", "many", config.NUM_THREADS_RULE),
        (
            "DNNL_PRIMITIVE_CACHE_CAPACITY",
            "-1",
            "the capacity of the primitive cache must be an integer >= 0",
        ),
        ("DNNL_JIT_DUMP", "perhaps", "a switch is 0 or 1"),
    ],
)
def test_a_bad_value_is_named_with_its_variable_and_rule(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, message: str
) -> None:
    monkeypatch.setenv(variable, text)
    (knob,) = (knob for knob in config.KNOBS if variable in knob.variables)
    with pytest.raises(InvalidArguments) as caught:
        config.get(knob.name)
    assert str(caught.value) == f"{variable} = {text!r}: {message}"


def test_an_override_wins_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DNNL_JIT_DUMP", "1")
    before = config.generation
    with config.override("jit_dump", False):
        assert config.get("jit_dump") is False
        with config.override("jit_dump", True):
            assert config.get("jit_dump") is True
        assert config.get("jit_dump") is False
    assert config.get("jit_dump") is True
    assert config.generation == before + 4


def test_an_override_is_checked_like_the_environment() -> None:
    with pytest.raises(InvalidArguments, match="num_threads = '0': a number of threads"):
        config.set("num_threads", 0)
    with pytest.raises(InvalidArguments, match=r"cache_dir = 'a.x00b': a path has no NUL"):
        config.set("cache_dir", "a\0b")
    with pytest.raises(InvalidArguments, match=r"cache_dir = '': .*cache_limit = 0 keeps nothing"):
        config.set("cache_dir", "")
    assert config.get("num_threads") is None


def test_a_knob_that_does_not_exist_is_told_the_others() -> None:
    with pytest.raises(InvalidArguments, match=r"name = 'threads': no such knob; there are ver"):
        config.get("threads")
    with pytest.raises(InvalidArguments, match="no such knob"):
        config.set("threads", 1)


@pytest.mark.parametrize(
    ("platform", "variable", "ending"),
    [
        ("linux", "XDG_CACHE_HOME", "base/dnnl"),
        ("linux", None, "home/.cache/dnnl"),
        ("darwin", None, "home/Library/Caches/dnnl"),
        ("win32", "LOCALAPPDATA", "base/dnnl"),
        ("win32", None, "home/AppData/Local/dnnl"),
    ],
)
def test_the_cache_is_where_the_system_wants_it(
    monkeypatch: pytest.MonkeyPatch, platform: str, variable: str | None, ending: str
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: Path("/home"))
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    if variable:
        monkeypatch.setenv(variable, "/base")
    assert config.get("cache_dir") == Path("/" + ending)


@pytest.mark.skipif(sys.platform == "win32", reason="accounts of a POSIX system")
def test_a_user_without_a_home_has_no_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert config.get("cache_dir") is None


@pytest.mark.skipif(sys.platform == "win32", reason="accounts of a POSIX system")
def test_the_folder_of_an_unknown_user_is_named_with_its_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DNNL_CACHE_DIR", "~no-such-user/x")
    with pytest.raises(InvalidArguments, match="DNNL_CACHE_DIR = '~no-such-user/x': this user's"):
        config.get("cache_dir")


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("max_cpu_isa", "avx1024", "is not a known instruction set"),
        ("max_cpu_isa", "avx2_vnni_2", "the next lower one is"),
        ("verbose", "bogus", "no such level"),
    ],
)
def test_values_are_checked_before_anything_else_is_imported(
    name: str, value: str, rule: str
) -> None:
    program = f"import dnnl; dnnl.config.set({name!r}, {value!r})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 1
    assert f"InvalidArguments: {name} = {value!r}" in done.stderr.decode()
    assert rule in done.stderr.decode()
