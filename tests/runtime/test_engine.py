"""Engines: discovery, features, loading of images, streams and thread counts."""

from __future__ import annotations

import pickle
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

import dnnl.runtime.engines
from dnnl import config
from dnnl.errors import Error, InvalidArguments
from dnnl.runtime import engine as engines
from dnnl.runtime.backend import Features
from dnnl.runtime.engine import Engine, _backend_class, engine_kinds, register
from dnnl.runtime.engines import sycl_devices
from dnnl.runtime.engines.null import Engine as Null
from dnnl.runtime.image import Image, Phase
from dnnl.runtime.quota import cpu_quota
from dnnl.runtime.stream import Stream
from dnnl.runtime.threads import available_cpus, get_num_threads, set_num_threads
from tests.launch import launch
from tests.runtime import kernels


@pytest.fixture(autouse=True)
def _default_threads() -> Iterator[None]:
    yield
    set_num_threads(None)


def test_the_kinds_of_engines_are_the_files_without_underscore() -> None:
    assert {"cpu", "null"} <= set(engine_kinds())
    assert not [kind for kind in engine_kinds() if "_" in kind]


def test_a_new_engine_is_one_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "from dnnl.runtime.engines.null import Engine as Null\nclass Engine(Null):\n"
    source += "    @classmethod\n    def count(cls):\n        return 3\n"
    (tmp_path / "toy.py").write_text(source)
    paths = [*dnnl.runtime.engines.__path__, str(tmp_path)]
    monkeypatch.setattr(dnnl.runtime.engines, "__path__", paths)
    monkeypatch.setattr(engines, "_ENGINES", tmp_path)
    engines._files.cache_clear()
    try:
        assert Engine.count("toy") == 3
        assert Engine("toy", 2).index == 2
        assert "toy" in engine_kinds()
    finally:
        engines._files.cache_clear()


def test_a_kind_of_somebody_elses_is_registered() -> None:
    class Toy(Null):
        @classmethod
        def count(cls) -> int:
            return 3

    class Other(Toy):
        pass

    register("foreign", Toy)
    try:
        register("foreign", Toy)
        assert Engine("foreign", 2).index == 2
        assert "foreign" in engine_kinds()
        for taken in ("foreign", "cpu"):
            with pytest.raises(
                InvalidArguments, match=f"kind = '{taken}': there is an engine kind"
            ):
                register(taken, Other)
    finally:
        del engines._added["foreign"]
    with pytest.raises(InvalidArguments, match="no such engine kind"):
        Engine("foreign")


def test_unknown_kinds_and_indices_are_refused() -> None:
    with pytest.raises(
        InvalidArguments, match=r"kind = 'gpu': no such engine kind; there are .*cpu.*null"
    ):
        Engine("gpu")
    with pytest.raises(InvalidArguments, match="kind = 'cpu_pool': no such engine kind"):
        Engine.count("cpu_pool")
    for index in (-1, 1):
        with pytest.raises(
            InvalidArguments, match=f"index = {index}: there are 1 engines of kind 'cpu'"
        ):
            Engine("cpu", index)


@pytest.mark.parametrize("index", [None, "0", 0.0])
def test_an_index_that_is_no_integer_is_refused(index: object) -> None:
    with pytest.raises(InvalidArguments, match=f"index = {index!r}: expected an integer below 1"):
        Engine("cpu", index)  # type: ignore[arg-type]
    assert type(Engine("cpu", np.int64(0)).index) is int  # type: ignore[arg-type]


def test_engines_are_values() -> None:
    assert Engine("cpu") == Engine("cpu", 0) != Engine("null")
    assert len({Engine("cpu"), Engine("cpu"), Engine("null")}) == 2
    assert repr(Engine("cpu")) == "Engine('cpu', 0)"
    for engine in (Engine("cpu"), Engine("null"), Engine("null", features=ARM)):
        assert pickle.loads(pickle.dumps(engine)) == engine


ARM = Features("aarch64", "neoverse-v1", frozenset({"neon", "sve"}))


def test_the_cpu_has_llvms_features_of_this_machine() -> None:
    features = Engine("cpu").features
    assert features.cpu == llvm.get_host_cpu_name()
    assert features.arch in {llvm.get_process_triple().split("-")[0], "aarch64"}
    on = {name for name, has in llvm.get_host_cpu_features().items() if has}
    assert features.flags == on
    assert features.has(*on)
    assert not features.has("no-such-feature")


def test_the_null_engine_pretends_anything() -> None:
    assert Engine("null").features.has("avx512f", "sve", "whatever")
    assert Engine("null", features=ARM).features.has("sve")
    assert not Engine("null", features=ARM).features.has("avx2")
    with pytest.raises(InvalidArguments, match="use engine 'null' to pretend"):
        Engine("cpu", features=ARM)


def test_the_null_engine_takes_any_image_and_computes_nothing() -> None:
    data = np.zeros(4, np.int64)
    executable = Engine("null").load(Image("ptx", b"no code", (Phase("any", 9),), (1,)))
    queue = Engine("null").make_queue(in_order=True)
    assert queue.submit(executable, (data.ctypes.data,), 2).done
    assert queue.bind(executable, (data.ctypes.data,), 2, data)().done
    assert not data.any()


def test_object_code_that_is_damaged_raises_and_the_process_lives() -> None:
    code = kernels.code()
    engine = Engine("cpu")
    for bad in (b"", b"no object", code[: len(code) // 2], code[:64]):
        with pytest.raises(Error, match=rf"cannot load object code \({len(bad)} bytes\)"):
            engine.load(Image("cpu", bad, (Phase("visit", 1),), (1,)))
    engine.load(kernels.image(("visit", 1)))


def test_a_missing_symbol_and_a_foreign_image_are_refused(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(Error, match="cannot load object code"):
        Engine("cpu").load(Image("cpu", kernels.code(), (Phase("nobody", 1),), (1,)))
    rule = "image.target = 'ptx': engine 'cpu' runs 'cpu' images"
    with pytest.raises(InvalidArguments, match=re.escape(rule)):
        Engine("cpu").load(Image("ptx", b"", (), ()))


def test_an_image_without_phases_does_nothing() -> None:
    launch(Engine("cpu").load(Image("cpu", kernels.code(), (), ())), (), 2)


def test_two_objects_may_define_the_same_symbols() -> None:
    first = kernels.image(("visit", 4))
    other = kernels.assembled("define void @visit(ptr %args, i64 %b, i64 %e, i64 %t) { ret void }")
    data = np.zeros(4, np.int64)
    second = Engine("cpu").load(Image("cpu", other, first.phases, first.arguments))
    launch(Engine("cpu").load(first), (data.ctypes.data, data.ctypes.data))
    launch(second, (data.ctypes.data, data.ctypes.data))
    assert data.tolist() == [1] * 4


def test_equal_code_is_linked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Engine("cpu").load(kernels.image(("visit", 4)))
    monkeypatch.setattr("dnnl.runtime.engines.cpu._loader", None)
    second = Engine("cpu").load(kernels.image(("visit", 5)))
    assert first.nbytes == second.nbytes > 0


def test_threads_may_load_at_the_same_time() -> None:
    codes = [
        kernels.assembled(f"define void @k{i}(ptr %args, i64 %b, i64 %e, i64 %t) {{ ret void }}")
        for i in range(20)
    ]
    done = []

    def work() -> None:
        for i, code in enumerate(codes):
            image = Image("cpu", code, (Phase(f"k{i}", 3),), ())
            launch(Engine("cpu").load(image), (), 2)
        done.append(True)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == [True] * 4


def test_a_backend_class_is_found_without_making_an_engine() -> None:
    assert _backend_class("null").count() == 1


def test_the_number_of_threads_by_call_stream_and_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DNNL_NUM_THREADS", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    set_num_threads(None)
    stream = Stream(Engine("cpu"))
    assert get_num_threads() == stream.num_threads == 5
    set_num_threads(3)
    assert get_num_threads() == stream.num_threads == 3
    assert Stream(Engine("cpu"), 2).num_threads == 2
    set_num_threads(np.int64(2))  # type: ignore[arg-type]
    assert get_num_threads() == Stream(Engine("cpu"), np.int64(2)).num_threads == 2  # type: ignore[arg-type]
    set_num_threads(None)
    assert get_num_threads() == 5
    with config.override("num_threads", 7):
        assert get_num_threads() == 7
    monkeypatch.delenv("OMP_NUM_THREADS")
    set_num_threads(None)
    assert get_num_threads() == available_cpus()
    stream.wait()


def test_threads_are_no_more_than_cpus_unless_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each place that takes a number says so."""
    monkeypatch.setattr("dnnl.runtime.threads.available_cpus", lambda: 2)
    monkeypatch.delenv("DNNL_OVERSUBSCRIBE", raising=False)
    said = "num_threads = 99: executions have 2, as this process may use 2 cpus; DNNL_OVERSUBSCRIBE"
    with pytest.warns(RuntimeWarning, match=said):
        assert Stream(Engine("cpu"), 99).num_threads == 2
    with pytest.warns(RuntimeWarning, match=said):
        set_num_threads(99)
    assert get_num_threads() == 2
    set_num_threads(None)
    monkeypatch.setenv("DNNL_NUM_THREADS", "99")
    set_num_threads(None)
    with pytest.warns(RuntimeWarning, match=said):
        assert get_num_threads() == 2
    with config.override("oversubscribe", True):
        assert get_num_threads() == Stream(Engine("cpu"), 99).num_threads == 99
    monkeypatch.delenv("DNNL_NUM_THREADS")
    set_num_threads(None)


GROUPS = {
    "none": ({}, None),
    "2, no limit": ({"proc/self/cgroup": "0::/a", "sys/fs/cgroup/a/cpu.max": "max 100000"}, None),
    "2, in a container": (
        {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "150000 100000"},
        1.5,
    ),
    "2, the group above": (
        {
            "proc/self/cgroup": "0::/a/b",
            "sys/fs/cgroup/a/cpu.max": "100000 100000",
            "sys/fs/cgroup/a/b/cpu.max": "400000 100000",
        },
        1.0,
    ),
    "1": (
        {
            "proc/self/cgroup": "4:memory:/docker/x\n3:cpu,cpuacct:/docker/x",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "50000",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "20000",
        },
        2.5,
    ),
    "1, no limit": (
        {
            "proc/self/cgroup": "3:cpu:/x",
            "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000",
        },
        None,
    ),
    "unreadable": ({"proc/self/cgroup": "0::/../a", "sys/fs/cgroup/cpu.max": "much"}, None),
}


@pytest.mark.parametrize("name", GROUPS)
def test_a_quota_of_cpus_counts_like_the_cpus(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, quota = GROUPS[name]
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text + "\n")
    assert cpu_quota(tmp_path) == quota
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(4)), raising=False)
    monkeypatch.setattr("dnnl.runtime.threads.cpu_quota", lambda: cpu_quota(tmp_path))
    assert available_cpus() == (4 if quota is None else int(quota))


@pytest.mark.parametrize("bad", [0, -1, True, 1.5, "2", 10**30])
def test_a_number_of_threads_that_makes_no_sense_is_refused(bad: object) -> None:
    rule = f"num_threads = {bad!r}: a number of threads must be an integer >= 1 and <= 1024; "
    rule += "1 runs on the calling thread"
    with pytest.raises(InvalidArguments) as caught:
        set_num_threads(bad)  # type: ignore[arg-type]
    assert str(caught.value) == rule
    with pytest.raises(InvalidArguments) as caught:
        Stream(Engine("cpu"), bad)  # type: ignore[arg-type]
    assert str(caught.value) == rule


def test_a_bad_number_in_the_environment_names_its_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DNNL_NUM_THREADS", "0")
    set_num_threads(None)
    rule = "DNNL_NUM_THREADS = '0': a number of threads must be an integer >= 1"
    with pytest.raises(InvalidArguments, match=rule):
        get_num_threads()


def test_a_kind_without_devices_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dpctl", None)
    sycl_devices.devices.cache_clear()
    try:
        with pytest.raises(InvalidArguments, match=r"0 engines of kind 'sycl'; pip install 'dnnl"):
            Engine("sycl")
    finally:
        sycl_devices.devices.cache_clear()
