"""What holds of every primitive: descriptions do not change, memory is not swapped, forks work."""

from __future__ import annotations

import dis
import os
import pickle
import random
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import dnnl
from dnnl import Arg, config, forks
from dnnl.primitives import primitive as primitives
from dnnl.primitives.cache import Cache, _Key
from tests.forking import DONE, forked

ENGINE = dnnl.Engine("cpu")
STREAM = dnnl.Stream(ENGINE)


def linear(*dims: int) -> dnnl.EltwiseDesc:
    md = dnnl.MemoryDesc(dims, "f32")
    return dnnl.EltwiseDesc.forward("forward_inference", "eltwise_linear", md, md, 2.0, 1.0)


def run(primitive: dnnl.Primitive, array: np.ndarray) -> np.ndarray:
    src = dnnl.Memory.from_numpy(array.astype(np.float32))
    dst = dnnl.Memory(primitive.pd.dst_desc, ENGINE)
    primitive.execute(STREAM, {Arg.SRC: src, Arg.DST: dst})
    return dst.numpy()


def test_attributes_read_from_a_description_are_a_copy() -> None:
    pd = dnnl.PrimitiveDesc(linear(5, 7), ENGINE)
    pd.attr.post_ops.append_eltwise("eltwise_relu")
    assert len(pd.attr.post_ops) == 0
    array = -np.abs(np.random.default_rng(1).standard_normal((5, 7))) - 1
    np.testing.assert_allclose(run(dnnl.Primitive(pd), array), 2 * array + 1, rtol=1e-6)


def test_next_impl_does_not_change_what_was_built() -> None:
    def any_desc(*dims: int) -> dnnl.MemoryDesc:
        return dnnl.MemoryDesc(dims, "f32", "any")

    desc = dnnl.ConvolutionDesc.forward(
        "forward_inference",
        "convolution_direct",
        any_desc(1, 16, 6, 6),
        any_desc(16, 1, 1, 3, 3),
        any_desc(1, 16, 6, 6),
        (1, 1),
        (1, 1),
    )
    pd = dnnl.PrimitiveDesc(desc, ENGINE)
    built = dnnl.Primitive(pd)
    assert pd.next_impl()
    assert pd.impl_info.startswith("brgemm")
    assert built.pd.impl_info.startswith("depthwise")
    assert "depthwise" in built.llvm_ir()


@pytest.mark.parametrize("field", ["desc", "engine", "data", "pointer"])
def test_fields_of_a_memory_are_fixed(field: str) -> None:
    memory = dnnl.Memory(dnnl.MemoryDesc((4,), "f32"), ENGINE)
    with pytest.raises(AttributeError, match="fixed"):
        setattr(memory, field, getattr(memory, field))


def test_what_only_looks_like_a_memory_is_refused() -> None:
    class Alike:
        desc = dnnl.MemoryDesc((4,), "f32")
        engine = ENGINE
        pointer = 64

    primitive = dnnl.Primitive(dnnl.PrimitiveDesc(linear(4), ENGINE))
    dst = dnnl.Memory(Alike.desc, ENGINE)
    with pytest.raises(dnnl.InvalidArguments, match=r"args\[SRC\].*expected a dnnl.Memory"):
        primitive.execute(STREAM, {Arg.SRC: Alike(), Arg.DST: dst})  # type: ignore[dict-item]


@pytest.mark.parametrize("args", [None, [], "SRC"])
def test_arguments_that_are_no_dictionary_are_refused(args: object) -> None:
    primitive = dnnl.Primitive(dnnl.PrimitiveDesc(linear(4), ENGINE))
    with pytest.raises(dnnl.InvalidArguments, match="expected a dictionary of memories"):
        primitive.execute(STREAM, args)  # type: ignore[arg-type]


@pytest.mark.parametrize("stream", [None, ENGINE, 3])
def test_what_is_no_stream_is_refused(stream: object) -> None:
    primitive = dnnl.Primitive(dnnl.PrimitiveDesc(linear(4), ENGINE))
    with pytest.raises(dnnl.InvalidArguments, match=r"expected a dnnl\.Stream"):
        primitive.execute(stream, {})  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "value"), [("attr", "x"), ("attr", {}), ("hint", "x")])
def test_attr_and_hint_are_checked(name: str, value: object) -> None:
    with pytest.raises(dnnl.InvalidArguments, match=f"{name} = "):
        dnnl.PrimitiveDesc(linear(4), ENGINE, **{name: value})  # type: ignore[arg-type]


FORWARD = "forward_inference"
ACROSS = "lrn_across_channels"


def pooling(alg: str, window: int, prop: str = "forward_training") -> dnnl.PrimitiveDesc:
    src = dnnl.MemoryDesc((1, 8, 8, 8), "f32")
    dst = dnnl.MemoryDesc((1, 8, 9 - window, 9 - window), "f32")
    made = dnnl.PoolingDesc.forward(prop, alg, src, dst, (1, 1), (window, window), (0, 0))
    return dnnl.PrimitiveDesc(made, ENGINE)


@pytest.mark.parametrize(
    ("hint", "rule"),
    [
        (pooling("pooling_max", 2), "expected the forward pass of pooling .*kh3"),
        (pooling("pooling_avg_include_padding", 3), "expected the forward pass of .*pooling_max"),
        (pooling("pooling_max", 3, "forward_inference"), "reads the workspace of forward_training"),
    ],
    ids=["window", "algorithm", "inference"],
)
def test_a_hint_is_the_forward_pass(hint: dnnl.PrimitiveDesc, rule: str) -> None:
    src, dst = dnnl.MemoryDesc((1, 8, 8, 8), "f32"), dnnl.MemoryDesc((1, 8, 6, 6), "f32")
    made = dnnl.PoolingDesc.backward("pooling_max", src, dst, (1, 1), (3, 3), (0, 0))
    with pytest.raises(dnnl.InvalidArguments, match=f"hint = .*{rule}"):
        dnnl.PrimitiveDesc(made, ENGINE, hint=hint)


def test_what_a_gradient_reads_has_a_layout() -> None:
    plain = dnnl.MemoryDesc((3, 8), "f32")
    made = dnnl.SoftmaxDesc.backward("softmax_accurate", plain, plain, plain.with_tag("any"), 1)
    with pytest.raises(dnnl.InvalidArguments, match=r"dst_desc = .*layout .* must be given"):
        dnnl.PrimitiveDesc(made, ENGINE)


@pytest.mark.parametrize("size", [2.5, True, "5"])
def test_an_integer_is_an_integer(size: object) -> None:
    plain = dnnl.MemoryDesc((3, 8, 2, 2), "f32")
    with pytest.raises(dnnl.InvalidArguments, match=r"local_size = .*expected an integer"):
        dnnl.LrnDesc.forward(FORWARD, ACROSS, plain, plain, size, 1.0, 1.0)  # type: ignore[arg-type]


def test_letters_of_flags_are_not_their_names() -> None:
    plain = dnnl.MemoryDesc((3, 8), "f32")
    with pytest.raises(dnnl.InvalidArguments, match=r"flags = 'CH'.*'use_scale\|use_shift'"):
        dnnl.LayerNormalizationDesc.forward(
            "forward_inference", plain, plain, epsilon=1e-5, flags="CH"
        )


def test_what_is_refused_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    attr = dnnl.PrimitiveAttr()
    attr.post_ops.append_binary("binary_add", dnnl.MemoryDesc((5,), "f32"))
    primitive = dnnl.Primitive(dnnl.PrimitiveDesc(linear(4), ENGINE))
    with config.override("verbose", "check"):
        with pytest.raises(dnnl.InvalidArguments):
            dnnl.PrimitiveDesc(linear(4), ENGINE, attr)
        with pytest.raises(dnnl.InvalidArguments):
            primitive.execute(STREAM, {})
        memory = dnnl.Memory(dnnl.MemoryDesc((4,), "f32"), ENGINE)
        with pytest.raises(dnnl.InvalidArguments):
            primitive.execute(STREAM, dict.fromkeys((Arg.SRC, Arg.DST, Arg.BIAS), memory))
    lines = capsys.readouterr().out.splitlines()
    assert any("create:check,eltwise,post_ops[0].src1_desc = (5,)" in line for line in lines)
    assert any("exec:check,eltwise,args[SRC] = None: missing" in line for line in lines)
    assert any("exec:check,eltwise,args[BIAS] = 'f32::blocked:a::" in line for line in lines)


def test_a_primitive_can_be_pickled() -> None:
    primitive = dnnl.Primitive(dnnl.PrimitiveDesc(linear(3, 3), ENGINE))
    array = np.random.default_rng(2).standard_normal((3, 3))
    copy = pickle.loads(pickle.dumps(primitive))
    np.testing.assert_array_equal(run(copy, array), run(primitive, array))


def test_an_interrupted_build_interrupts_nobody_else() -> None:
    cache: Cache[int] = Cache(lambda: 8)
    building, go_on = threading.Event(), threading.Event()
    results: list[object] = []

    def interrupted() -> int:
        building.set()
        assert go_on.wait(10)
        raise KeyboardInterrupt

    def first() -> None:
        with pytest.raises(KeyboardInterrupt):
            cache.get("key", interrupted)

    def second() -> None:
        results.append(cache.get("key", lambda: 7))

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert building.wait(10)
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert results == [(7, False)]


def test_a_cache_keeps_its_limits_in_number_and_in_bytes() -> None:
    limits = {"capacity": 3, "bytes": 100}
    cache: Cache[int] = Cache(lambda: limits["capacity"], lambda: limits["bytes"], lambda x: x)

    def kept() -> set[int]:
        hits = {key for key in (10, 20, 60, 90) if key in cache}
        assert len(hits) == len(cache)
        return hits

    for size in (10, 20, 60):
        assert cache.get(size, partial(int, size)) == (size, False)
    assert kept() == {10, 20, 60}
    cache.get(10, lambda: 10)  # used again: 20 and 60 are older now
    cache.get(90, lambda: 90)
    assert kept() == {10, 90}
    limits["bytes"] = 0
    cache.get(20, lambda: 20)
    assert kept() == set()


def test_a_bad_limit_is_an_error_every_time() -> None:
    def refuse() -> int:
        raise dnnl.InvalidArguments("limit", "1GB", "an integer")

    cache: Cache[int] = Cache(lambda: 8, refuse)
    for _ in range(3):
        with pytest.raises(dnnl.InvalidArguments):
            cache.get("key", lambda: 7)


def test_an_interrupt_while_a_key_is_hashed_breaks_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A dictionary asks for the hash in the middle of a change."""
    plain = _Key.__hash__

    def interrupted(left: Iterator[int]) -> Callable[[_Key], int]:
        def of(self: _Key) -> int:
            own = sys._getframe(1).f_code in (Cache.get.__code__, Cache._store.__code__)
            if own and not next(left, 1):
                raise KeyboardInterrupt
            return plain(self)

        return of

    for number in range(12):
        cache: Cache[int] = Cache(lambda: 3, lambda: 100, lambda value: value)
        for key in (1, 2, 3):
            cache.get(key, partial(int, key))
        monkeypatch.setattr(_Key, "__hash__", interrupted(iter(range(number, -1, -1))))
        with suppress(KeyboardInterrupt):
            cache.get(1, lambda: 1)
            cache.get(4, lambda: 4)
            cache.get(5, lambda: 5)
        monkeypatch.setattr(_Key, "__hash__", plain)
        for key in (6, 7, 1):
            assert cache.get(key, partial(int, key))[0] == key
        assert len(cache) == 3


def test_an_interrupt_at_any_point_leaves_the_cache_to_others() -> None:
    """Python looks for signals where functions begin, behind calls and where loops go back."""
    looks = ("RESUME", "CALL", "JUMP_BACKWARD")

    def interrupted(after: int) -> bool:
        """Whether an interrupt came, at one of these places in the cache and what it calls."""
        cache: Cache[int] = Cache(lambda: 2, lambda: 100, lambda value: value)
        left, last = after, {id(None): ""}

        def trace(frame: FrameType, event: str, _: object) -> Any:
            nonlocal left
            if frame.f_code.co_filename not in (cached, forks.__file__):
                return None
            frame.f_trace_opcodes = True
            if event == "opcode":
                left -= last.get(id(frame), "").startswith(looks)
                last[id(frame)] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            if left < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
            return trace

        before = sys.gettrace()
        sys._getframe().f_trace_opcodes = True  # Python 3.12 asks once, when tracing begins
        try:
            sys.settrace(trace)
            cache.get("key", lambda: 7)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        found: list[object] = []
        ask = threading.Thread(target=lambda: found.append(cache.get("key", lambda: 7)[0]))
        ask.daemon = True  # or a failure would wait for ever
        ask.start()
        ask.join(10)
        assert found == [7], f"place {after}"
        return left < 0

    cached = Cache.get.__code__.co_filename
    places = 0
    while interrupted(places):
        places += 1
    assert places > 10


def test_a_signal_handler_may_ask_the_cache() -> None:
    cache: Cache[int] = Cache(lambda: 8, lambda: 100, lambda _: 10)
    with cache._lock.own:  # as if the signal had come within `get`
        assert cache.get("key", lambda: 7) == (7, False)
    # And while its own thread builds what it asks for.
    assert cache.get("slow", lambda: cache.get("slow", lambda: 8)[0] + 1) == (9, False)
    assert cache.get("slow", lambda: 0) == (9, True)
    assert len(cache) == 2


def test_a_cache_that_forgets_while_threads_ask() -> None:
    class Key(str):
        """Hashed in Python, so that other threads run in the middle."""

        def __hash__(self) -> int:
            return hash(str(self))

        def __eq__(self, other: object) -> bool:
            return str(self) == str(other)

    cache: Cache[int] = Cache(lambda: 1, lambda: 100, lambda value: value)
    building: set[str] = set()
    wrong: list[object] = []

    def build(name: str) -> int:
        wrong.extend([name] if name in building else [])
        building.add(name)
        building.discard(name)
        return 10

    def ask(seed: int) -> None:
        chance = random.Random(seed)
        try:
            for _ in range(3000):
                name = chance.choice("abc")
                cache.get(Key(name), partial(build, name))
        except Exception as error:
            wrong.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not wrong
    assert len(cache) == 1


def test_primitives_beyond_the_limit_are_built_again_and_those_in_use_live() -> None:
    used = dnnl.Primitive(dnnl.PrimitiveDesc(linear(3, 3), ENGINE))
    array = np.random.default_rng(2).standard_normal((3, 3))
    want = run(used, array)
    with config.override("primitive_cache_capacity", 0):
        for size in range(10, 20):
            dnnl.Primitive(dnnl.PrimitiveDesc(linear(size, 3), ENGINE))
        assert len(primitives._cache) == 0
        np.testing.assert_array_equal(run(used, array), want)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork is POSIX")
def test_a_child_of_a_fork_builds_what_its_parent_had_not_finished() -> None:
    cache: Cache[int] = Cache(lambda: 8)
    building, go_on = threading.Event(), threading.Event()

    def slow() -> int:
        building.set()
        go_on.wait(30)
        return 1

    thread = threading.Thread(target=cache.get, args=("key", slow))
    thread.start()
    assert building.wait(10)

    def child() -> None:
        assert cache.get("key", lambda: 2) == (2, False)

    code = forked(child, limit=10)
    go_on.set()
    thread.join(10)
    assert code == DONE


def test_the_file_of_another_kernel_is_not_executed(tmp_path: Path) -> None:
    small, large = (dnnl.PrimitiveDesc(linear(*dims), ENGINE) for dims in ((8, 8), (512, 512)))
    with config.override("cache_dir", tmp_path):
        primitives._cache.clear()
        dnnl.Primitive(small)
        (own,) = tmp_path.iterdir()
        dnnl.Primitive(large)
        (other,) = {*tmp_path.iterdir()} - {own}
        shutil.copyfile(other, own)
        primitives._cache.clear()
        array = np.random.default_rng(3).standard_normal((8, 8))
        np.testing.assert_allclose(
            run(dnnl.Primitive(small), array), 2 * array.astype(np.float32) + 1, rtol=1e-6
        )


def test_a_direction_is_the_one_of_its_constructor() -> None:
    plain, rule = dnnl.MemoryDesc((3, 8, 4, 4), "f32"), r"prop_kind = .*expected forward_training"
    norms = dnnl.BatchNormalizationDesc, dnnl.LayerNormalizationDesc
    for desc in norms:
        with pytest.raises(dnnl.InvalidArguments, match=rule):
            desc.forward("backward", plain, plain, epsilon=1e-5, flags="none")
        with pytest.raises(dnnl.InvalidArguments, match=r"prop_kind = .*expected backward"):
            desc.backward("forward_training", plain, plain, plain, 1e-5, "none")
    with pytest.raises(dnnl.InvalidArguments, match=rule):
        dnnl.PoolingDesc.forward("backward", "pooling_max", plain, plain, (1, 1), (1, 1), (0, 0))


def test_arguments_by_name() -> None:
    attr = dnnl.PrimitiveAttr()
    attr.post_ops.append_binary("binary_add", dnnl.MemoryDesc((1, 7), "f32"))
    pd = dnnl.PrimitiveDesc(linear(5, 7), ENGINE, attr)
    assert pd.arg_desc("SRC") == pd.arg_desc(Arg.SRC) == pd.src_desc
    assert pd.arg_desc("post_op(0)|SRC_1").dims == (1, 7)
    with pytest.raises(dnnl.InvalidArguments, match=r"arg = 'src': .*did you mean 'SRC'\?"):
        pd.arg_desc("src")
