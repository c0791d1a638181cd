"""Descriptions become primitives: choice, caches, arguments, scratchpads, verbose lines."""

from __future__ import annotations

import ctypes
import os
import pickle
import re
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter

import numpy as np
import pytest

from dnnl import (
    RUNTIME_DIM,
    Arg,
    BatchNormalizationDesc,
    EltwiseDesc,
    Engine,
    InvalidArguments,
    Memory,
    MemoryDesc,
    PoolingDesc,
    Primitive,
    PrimitiveAttr,
    PrimitiveDesc,
    Stream,
    SumDesc,
    Unimplemented,
    config,
)
from dnnl.codegen.compile import jit
from dnnl.codegen.ir.kernel import Recipe
from dnnl.primitives import primitive as module
from tests.check import logical
from tests.primitives.harness import ENGINE, describe, execute, source, vector

STREAM = Stream(ENGINE, 1)
DIMS = (2, 3, 4, 5)
FORWARD = "forward_inference"
KERNELS = "[0-9a-f]" * 64 + ".dnnl"


def relu(dims: tuple[int, ...] = DIMS, layout: str = "nchw", alpha: float = 0.0) -> EltwiseDesc:
    desc = describe(dims, layout)
    return EltwiseDesc.forward(FORWARD, "eltwise_relu", desc, desc, alpha)


@pytest.fixture
def kernels(tmp_path: Path) -> Iterator[Path]:
    """An empty folder for kernels, and an empty cache in memory."""
    module._cache.clear()
    with config.override("cache_dir", tmp_path):
        yield tmp_path
    module._cache.clear()


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The recipes whose image was asked for."""
    seen: list[object] = []
    original = jit.image

    def image(recipe: Recipe) -> tuple[object, bool]:
        seen.append(recipe)
        return original(recipe)

    monkeypatch.setattr(jit, "image", image)
    return seen


class TestPrimitiveDesc:
    def test_it_tells_how(self) -> None:
        pd = PrimitiveDesc(relu(layout="nChw16c"), ENGINE)
        assert re.fullmatch(r"nest:\w+", pd.impl_info)
        assert [str(candidate) for candidate in pd.candidates] == ["nest: accepted"]
        assert pd.src_desc == pd.dst_desc == describe(DIMS, "nChw16c")
        assert pd.arg_desc(Arg.DST) == pd.dst_desc
        for absent in (pd.weights_desc, pd.bias_desc, pd.workspace_desc, pd.scratchpad_desc):
            assert absent.is_zero

    def test_there_is_no_next_implementation(self) -> None:
        pd = PrimitiveDesc(relu(), ENGINE)
        before = pd.impl_info, pd.dst_desc
        assert not pd.next_impl()
        assert (pd.impl_info, pd.dst_desc) == before

    def test_all_reasons_are_told(self) -> None:
        desc = PoolingDesc.forward(
            "forward_training",
            "pooling_max",
            describe(DIMS, "nchw").with_data_type("s16"),
            describe((2, 3, 2, 2), "nchw"),
            (2, 2),
            (2, 2),
            (0, 0),
        )
        with pytest.raises(Unimplemented) as caught:
            PrimitiveDesc(desc, ENGINE)
        (candidate,) = caught.value.reasons
        assert str(candidate).startswith("nest: unsupported data type: s16")
        assert str(candidate) in str(caught.value)
        assert "pooling mb2ic3_ih4" in str(caught.value)
        assert isinstance(caught.value, NotImplementedError)

    def test_the_attribute_is_copied(self) -> None:
        attr = PrimitiveAttr()
        attr.post_ops.append_eltwise("eltwise_square")
        pd = PrimitiveDesc(relu(), ENGINE, attr)
        attr.post_ops.append_eltwise("eltwise_exp")
        assert len(pd.attr.post_ops) == 1

    def test_bad_arguments(self) -> None:
        with pytest.raises(InvalidArguments, match=r"desc = 'relu'.*EltwiseDesc"):
            PrimitiveDesc("relu", ENGINE)  # type: ignore[arg-type]
        with pytest.raises(InvalidArguments, match="engine = 'cpu'"):
            PrimitiveDesc(relu(), "cpu")  # type: ignore[arg-type]
        with pytest.raises(InvalidArguments, match=r"pd = .*PrimitiveDesc"):
            Primitive(relu())  # type: ignore[arg-type]

    def test_the_instruction_set_can_be_limited(self) -> None:
        with config.override("max_cpu_isa", "generic"):
            pd = PrimitiveDesc(relu(), ENGINE)
        assert pd.impl_info == "nest:generic"

    def test_the_null_engine_compiles_for_any_instruction_set(self) -> None:
        with config.override("max_cpu_isa", "neon"):
            primitive = Primitive(PrimitiveDesc(relu(), Engine("null")))
        assert "eltwise__f32__4x1__neon" in primitive.llvm_ir()
        assert ".4s" in primitive.asm()


def test_descriptions_are_values() -> None:
    desc = relu(alpha=0.5)
    assert desc == relu(alpha=0.5)
    assert hash(desc) == hash(relu(alpha=0.5))
    assert desc != relu(alpha=0.25)
    assert pickle.loads(pickle.dumps(desc)) == desc
    total = SumDesc((1.0, 2.0), (desc.src_desc, desc.src_desc))
    assert pickle.loads(pickle.dumps(total)) == total


def test_generated_code_can_be_read_and_does_not_change() -> None:
    primitive = Primitive(PrimitiveDesc(relu(), ENGINE))
    assert re.search(r"define void @\"eltwise__f32__\d+x1__\w+\"", primitive.llvm_ir())
    assert primitive.llvm_ir() == primitive.llvm_ir()
    assert "eltwise__f32__" in primitive.asm()


class TestCacheInMemory:
    def test_equal_primitives_are_built_once(self, kernels: Path, builds: list[object]) -> None:
        for _ in range(3):
            Primitive(PrimitiveDesc(relu(), ENGINE))
        assert len(builds) == 1
        Primitive(PrimitiveDesc(relu(alpha=1.0), ENGINE))
        attr = PrimitiveAttr()
        attr.post_ops.append_eltwise("eltwise_square")
        Primitive(PrimitiveDesc(relu(), ENGINE, attr))
        assert len(builds) == 3

    def test_a_limit_of_instruction_set_is_part_of_the_key(
        self, kernels: Path, builds: list[object]
    ) -> None:
        Primitive(PrimitiveDesc(relu(), ENGINE))
        with config.override("max_cpu_isa", "generic"):
            Primitive(PrimitiveDesc(relu(), ENGINE))
        assert len(builds) == 2

    def test_concurrent_creators_wait_for_one_build(
        self, kernels: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        original, started, proceed = jit.image, threading.Event(), threading.Event()
        calls = []

        def image(recipe: Recipe) -> tuple[object, bool]:
            calls.append(recipe)
            started.set()
            assert proceed.wait(10)
            return original(recipe)

        monkeypatch.setattr(jit, "image", image)
        made: list[Primitive] = []
        threads = [
            threading.Thread(target=lambda: made.append(Primitive(PrimitiveDesc(relu(), ENGINE))))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        assert started.wait(10)
        proceed.set()
        for thread in threads:
            thread.join()
        assert len(made) == 8
        assert len(calls) == 1

    def test_a_failed_build_is_not_values(
        self, kernels: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(recipe: Recipe) -> tuple[object, bool]:
            raise RuntimeError("no compiler today")

        with monkeypatch.context() as patch:
            patch.setattr(jit, "image", fail)
            with pytest.raises(RuntimeError, match="today"):
                Primitive(PrimitiveDesc(relu(), ENGINE))
        Primitive(PrimitiveDesc(relu(), ENGINE))

    def test_the_least_recently_used_goes_first(self, kernels: Path, builds: list[object]) -> None:
        with config.override("primitive_cache_capacity", 2):
            for alpha in (1.0, 2.0, 1.0, 3.0):
                Primitive(PrimitiveDesc(relu(alpha=alpha), ENGINE))
            assert len(builds) == 3
            Primitive(PrimitiveDesc(relu(alpha=1.0), ENGINE))
            assert len(builds) == 3
            Primitive(PrimitiveDesc(relu(alpha=2.0), ENGINE))
            assert len(builds) == 4

    def test_capacity_0_keeps_nothing(self, kernels: Path, builds: list[object]) -> None:
        with config.override("primitive_cache_capacity", 0):
            for _ in range(2):
                Primitive(PrimitiveDesc(relu(), ENGINE))
        assert len(builds) == 2
        assert len(module._cache) == 0


class TestCacheOnDisk:
    @staticmethod
    def build() -> bool:
        """Build without the cache in memory; whether the kernel came from the disk."""
        module._cache.clear()
        memory = source(DIMS, "nchw")
        result = execute(relu(), {Arg.SRC: memory})
        assert (logical(result) == np.maximum(logical(memory), 0)).all()
        first, *_ = module._cache._values.values()  # others are those of another engine
        return first.from_disk

    def test_the_second_time_it_is_found(self, kernels: Path) -> None:
        assert not self.build()
        (file,) = kernels.glob(KERNELS)
        assert self.build()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600

    @pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "other"])
    def test_a_damaged_file_is_built_again(self, kernels: Path, damage: str) -> None:
        self.build()
        (file,) = kernels.glob(KERNELS)
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(
            {
                "truncated": bytes(data[: len(data) // 2]),
                "flipped": bytes(data),
                "empty": b"",
                "other": b"not a kernel at all" * 10,
            }[damage]
        )
        assert not self.build()
        assert self.build()

    @pytest.mark.skipif(os.name != "posix", reason="modes of files are POSIX")
    @pytest.mark.parametrize("mode", [0o620, 0o602])
    def test_a_file_that_others_can_write_is_ignored(self, kernels: Path, mode: int) -> None:
        self.build()
        (file,) = kernels.glob(KERNELS)
        file.chmod(mode)
        assert not self.build()
        assert self.build()

    def test_a_folder_that_cannot_be_written_costs_only_time(
        self, kernels: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (kernels / "file").write_text("in the way")
        with config.override("cache_dir", kernels / "file" / "below"):
            assert not self.build()
            assert not self.build()
            assert capsys.readouterr().out == ""
            with config.override("verbose", "warn"):
                assert not self.build()
        assert "kernel cache" in capsys.readouterr().out

    def test_a_limit_of_0_keeps_nothing(self, kernels: Path) -> None:
        with config.override("cache_limit", 0):
            assert not self.build()
            assert not self.build()
        assert not list(kernels.iterdir())

    def test_no_temporary_files_stay(self, kernels: Path) -> None:
        self.build()
        assert [file.name for file in kernels.iterdir()] == [
            file.name for file in kernels.glob(KERNELS)
        ]


class TestExecution:
    def test_execute_and_bind(self) -> None:
        primitive = Primitive(PrimitiveDesc(relu(), ENGINE))
        src, dst = source(DIMS, "nchw"), Memory(relu().dst_desc, ENGINE)
        args: dict[int, Memory] = {Arg.SRC: src, Arg.DST: dst}
        want = np.maximum(src.numpy(), 0)
        primitive.execute(STREAM, args)
        assert (dst.numpy() == want).all()
        run = primitive.bind(STREAM, args)
        for _ in range(3):
            dst.data[:] = 0xFF
            run()
            assert (dst.numpy() == want).all()

    def test_a_bound_execution_keeps_its_memories(self) -> None:
        primitive = Primitive(PrimitiveDesc(relu((1_000_000,), "a"), ENGINE))
        dst = Memory(primitive.pd.dst_desc, ENGINE)
        run = primitive.bind(STREAM, {Arg.SRC: source((1_000_000,), "a"), Arg.DST: dst})
        run()
        assert float(dst.numpy().sum()) > 0

    def test_integer_keys_are_fine(self) -> None:
        src = source(DIMS, "nchw")
        result = execute(relu(), {int(Arg.SRC): src})
        assert (logical(result) == np.maximum(logical(src), 0)).all()

    def test_from_many_threads_at_once(self) -> None:
        """With a scratchpad of the library, of which each thread has its own."""
        dims = (2, 64, 64, 64)
        data, flags = describe(dims, "nhwc"), "use_global_stats|use_scale|use_shift"
        desc = BatchNormalizationDesc.forward(FORWARD, data, data, 1e-5, flags)
        primitive = Primitive(PrimitiveDesc(desc, ENGINE))
        assert not primitive.pd.scratchpad_desc.is_zero
        names = (Arg.MEAN, Arg.VARIANCE, Arg.SCALE, Arg.SHIFT)
        failures = []
        together = threading.Barrier(2)

        def work(seed: int) -> None:
            args: dict[int, Memory] = {name: vector(64, seed + name) for name in names}
            args[Arg.SRC] = source(dims, "nhwc", seed)
            want = execute(desc, args).data
            args[Arg.DST] = Memory(data, ENGINE)
            together.wait(10)
            for _ in range(400):
                primitive.execute(STREAM, args)
                if (args[Arg.DST].data != want).any():
                    failures.append(seed)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures

    def test_the_users_scratchpad(self) -> None:
        data = describe((2, 19, 3, 3), "nchw")
        desc = BatchNormalizationDesc.forward(FORWARD, data, data, 1e-5, "use_global_stats")
        args: dict[int, Memory] = {
            Arg.SRC: source((2, 19, 3, 3), "nchw"),
            Arg.MEAN: vector(19, 1),
            Arg.VARIANCE: vector(19, 2),
        }
        want = logical(execute(desc, args))
        pd = PrimitiveDesc(desc, ENGINE, PrimitiveAttr(scratchpad_mode="user"))
        assert pd.scratchpad_desc.size >= 19 * 4
        dst = Memory(data, ENGINE)
        with pytest.raises(InvalidArguments, match=r"args\[SCRATCHPAD\].*missing"):
            Primitive(pd).execute(STREAM, {**args, Arg.DST: dst})
        scratchpad = Memory(pd.scratchpad_desc, ENGINE)
        Primitive(pd).execute(STREAM, {**args, Arg.DST: dst, Arg.SCRATCHPAD: scratchpad})
        assert (logical(dst) == want).all()

    def test_no_scratchpad_is_needed_where_there_is_none(self) -> None:
        attr = PrimitiveAttr(scratchpad_mode="user")
        assert PrimitiveDesc(relu(), ENGINE, attr).scratchpad_desc.is_zero
        execute(relu(), {Arg.SRC: source(DIMS, "nchw")}, attr)


class TestVerbose:
    def lines(self, capsys: pytest.CaptureFixture[str]) -> list[str]:
        text = capsys.readouterr().out.splitlines()
        return [line for line in text if ",primitive," in line]

    def test_creation_and_execution(
        self, kernels: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        memory, dst = source(DIMS, "nchw"), Memory(relu().dst_desc, ENGINE)
        with config.override("verbose", "profile"):
            primitive = Primitive(PrimitiveDesc(relu(), ENGINE))
            primitive.execute(STREAM, {Arg.SRC: memory, Arg.DST: dst})
            Primitive(PrimitiveDesc(relu(), ENGINE))
            module._cache.clear()
            Primitive(PrimitiveDesc(relu(), ENGINE))
        fields = (
            rf"cpu,eltwise,{primitive.pd.impl_info},forward_inference,"
            r"src:f32::blocked:abcd::f0 dst:f32::blocked:abcd::f0,,"
            r"alg:eltwise_relu alpha:0 beta:0,2x3x4x5,[0-9.e+-]+"
        )
        events = ["create:cache_miss", "exec", "create:cache_hit", "create:persistent_cache_hit"]
        lines = self.lines(capsys)
        assert len(lines) == len(events)
        for line, event in zip(lines, events, strict=True):
            assert re.fullmatch(f"dnnl_verbose,v1,primitive,{event},{fields}", line), line

    def test_the_level_and_the_filter_select(self, capsys: pytest.CaptureFixture[str]) -> None:
        memory, dst = source(DIMS, "nchw"), Memory(relu().dst_desc, ENGINE)
        for level, count in (("profile_exec", 1), ("none", 0), ("1,filter=softmax", 0)):
            with config.override("verbose", level):
                primitive = Primitive(PrimitiveDesc(relu(), ENGINE))
                primitive.execute(STREAM, {Arg.SRC: memory, Arg.DST: dst})
            assert len(self.lines(capsys)) == count

    def test_refusals(self, capsys: pytest.CaptureFixture[str]) -> None:
        small = MemoryDesc((2, 3), "s64")
        desc = EltwiseDesc.forward(FORWARD, "eltwise_relu", small, small)
        with config.override("verbose", "dispatch"), pytest.raises(Unimplemented):
            PrimitiveDesc(desc, ENGINE)
        (line,) = self.lines(capsys)
        assert "create:dispatch" in line
        assert "eltwise,nest,unsupported data type: s64" in line

    def test_refusals_of_run_time_sizes(self, capsys: pytest.CaptureFixture[str]) -> None:
        small = MemoryDesc((RUNTIME_DIM, 3), "s64")
        desc = EltwiseDesc.forward(FORWARD, "eltwise_relu", small, small)
        with config.override("verbose", "dispatch"), pytest.raises(Unimplemented):
            PrimitiveDesc(desc, ENGINE)
        (line,) = self.lines(capsys)
        assert "eltwise,nest,unsupported data type: s64" in line

    def test_any_and_attributes_are_shown(self) -> None:
        attr = PrimitiveAttr()
        attr.post_ops.append_eltwise("eltwise_linear", 2.0, 1.0)
        src = describe(DIMS, "nChw16c")
        desc = EltwiseDesc.forward(FORWARD, "eltwise_relu", src, MemoryDesc(DIMS, "f32", "any"))
        text = PrimitiveDesc(desc, ENGINE, attr).verbose_fields()
        assert "src:f32:p:blocked:aBcd16b::f0 dst:f32:ap:blocked:aBcd16b::f0" in text
        assert "attr-post-ops:eltwise_linear:2:1" in text


@pytest.mark.skipif(sys.platform == "win32", reason="libc")
def test_an_execution_holds_no_lock_of_python() -> None:
    """A thread that waits for its turn gets it while a kernel runs, not behind that."""
    primitive = Primitive(PrimitiveDesc(relu((1 << 24,), "a"), ENGINE))
    src, dst = Memory(primitive.pd.src_desc, ENGINE), Memory(primitive.pd.dst_desc, ENGINE)
    ctypes.memset(src.pointer, 0, src.desc.size)
    run = primitive.bind(STREAM, {Arg.SRC: src, Arg.DST: dst})
    calls: SimpleQueue[bool] = SimpleQueue()
    woken: SimpleQueue[float] = SimpleQueue()

    def wake() -> None:
        while calls.get():
            woken.put(perf_counter())

    thread = threading.Thread(target=wake)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)  # nobody is made to give the lock away
    try:
        thread.start()
        meanwhile = 0
        for _ in range(20):
            calls.put(True)
            run()
            ended = perf_counter()
            meanwhile += woken.get() < ended
    finally:
        calls.put(False)
        thread.join()
        sys.setswitchinterval(interval)
    assert meanwhile
