"""Streams in and out of order, and events: on the cpu, on a device that is late, and across."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dnnl import (
    Arg,
    BatchNormalizationDesc,
    EltwiseDesc,
    Engine,
    InvalidArguments,
    Memory,
    MemoryDesc,
    Primitive,
    PrimitiveDesc,
    ReorderDesc,
    Stream,
    config,
)
from dnnl.runtime.event import COMPLETE, Event
from tests.device import FAR, FRESH, Launch, backend_of
from tests.pairs import every_pair

CPU = Engine("cpu")
DEVICE = backend_of(FAR)
SHAPE = (3, 40)
VALUES = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)
FORWARD = "forward_inference"
EITHER_ORDER = pytest.mark.parametrize("in_order", [True, False])
EITHER_ENGINE = pytest.mark.parametrize("engine", [CPU, FAR], ids=lambda engine: str(engine.kind))


@pytest.fixture(autouse=True)
def _nothing_fails() -> Iterator[None]:
    yield
    DEVICE.failure = None


def doubling(engine: Engine, shape: tuple[int, ...] = SHAPE) -> Primitive:
    """dst = 2 src + 1."""
    desc = MemoryDesc(shape, "f32")
    made = EltwiseDesc.forward(FORWARD, "eltwise_linear", desc, desc, 2.0, 1.0)
    return Primitive(PrimitiveDesc(made, engine))


def memory(engine: Engine, values: NDArray[np.float32] = VALUES) -> Memory:
    return Memory.from_numpy(values.copy(), engine=engine)


def empty(engine: Engine, shape: tuple[int, ...] = SHAPE) -> Memory:
    return Memory.from_numpy(np.full(shape, np.nan, np.float32), engine=engine)


def doubled(times: int) -> NDArray[np.float32]:
    want = VALUES
    for _ in range(times):
        want = 2 * want + 1
    return want


@EITHER_ORDER
def test_on_the_cpu_all_is_done_when_it_is_submitted(in_order: bool) -> None:
    stream = Stream(CPU, 1, in_order=in_order)
    assert stream.in_order is in_order
    args = {Arg.SRC: memory(CPU), Arg.DST: empty(CPU)}
    event = doubling(CPU).execute(stream, args)
    assert event is COMPLETE
    assert event.done
    assert (args[Arg.DST].numpy() == doubled(1)).all()
    run = doubling(CPU).bind(stream, args)
    assert run() is run([event]) is run(after=[event]) is COMPLETE
    event.wait()
    stream.wait()


def test_what_a_stream_is() -> None:
    assert repr(Stream(CPU, 2)) == "Stream(Engine('cpu', 0), num_threads=2)"
    assert repr(Stream(FAR, in_order=False)) == (
        "Stream(Engine('far', 0), num_threads=None, in_order=False)"
    )
    with pytest.raises(InvalidArguments, match="engine = 'cpu'"):
        Stream("cpu")  # type: ignore[arg-type]
    assert repr(Stream(CPU, profiling=True)) == (
        "Stream(Engine('cpu', 0), num_threads=None, profiling=True)"
    )
    for name in ("in_order", "profiling"):
        with pytest.raises(InvalidArguments, match=f"{name} = 'yes'"):
            Stream(CPU, **{name: "yes"})  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["cpu", "null"])
def test_a_bound_call_owns_its_memories(kind: str) -> None:
    engine = Engine(kind)
    src, dst = memory(engine), empty(engine)
    seen = weakref.ref(src)
    call = doubling(engine).bind(Stream(engine), {Arg.SRC: src, Arg.DST: dst})
    del src
    gc.collect()
    assert seen() is not None
    call()
    del call
    gc.collect()
    assert seen() is None


@every_pair(
    EITHER_ENGINE, EITHER_ORDER, pytest.mark.parametrize("after", [COMPLETE, [None], ["x"], 3])
)
def test_what_is_no_list_of_events_is_refused(
    engine: Engine, in_order: bool, after: object
) -> None:
    primitive, stream = doubling(engine), Stream(engine, in_order=in_order)
    args = {Arg.SRC: memory(engine), Arg.DST: empty(engine)}
    for call in (partial(primitive.execute, stream, args), primitive.bind(stream, args)):
        with pytest.raises(InvalidArguments, match=r"after = .*expected (a list of )?events"):
            call(after=after)


@EITHER_ORDER
def test_an_execution_is_over_when_its_event_says_so(in_order: bool) -> None:
    stream, args = Stream(FAR, in_order=in_order), {Arg.SRC: memory(FAR), Arg.DST: empty(FAR)}
    with DEVICE.held():
        event = doubling(FAR).execute(stream, args)
        assert isinstance(event, Event)
        assert not event.done
    event.wait()
    assert event.done
    event.wait()


def test_a_stream_waits_for_all_that_was_submitted() -> None:
    stream, args = Stream(FAR, in_order=False), {Arg.SRC: memory(FAR), Arg.DST: empty(FAR)}
    with DEVICE.held():
        events = [doubling(FAR).execute(stream, args) for _ in range(5)]
    stream.wait()
    assert all(event.done for event in events)


def chain(streams: list[Stream], ordered: bool, length: int = 6) -> NDArray[np.float32]:
    """What is left of ``length`` executions, each on the result of the one before."""
    primitive, memories = doubling(FAR), [memory(FAR), *(empty(FAR) for _ in range(length))]
    last: list[Event] = []
    for number in range(length):
        args = {Arg.SRC: memories[number], Arg.DST: memories[number + 1]}
        stream = streams[number % len(streams)]
        event = primitive.execute(stream, args, after=last)
        last = [event] if ordered else []
    for stream in streams:
        stream.wait()
    return memories[-1].numpy()


def test_executions_have_an_order_only_where_they_are_given_one() -> None:
    for _ in range(10):
        assert (chain([Stream(FAR)], ordered=False) == doubled(6)).all()
        apart = [Stream(FAR, in_order=False), Stream(FAR), Stream(FAR, in_order=False)]
        assert (chain(apart, ordered=True) == doubled(6)).all()
    unordered = [Stream(FAR, in_order=False)]
    assert any(np.isnan(chain(unordered, ordered=False)).any() for _ in range(10))


def test_events_go_from_engine_to_engine() -> None:
    other = Engine("far", 1)
    for _ in range(5):
        first, second, third = memory(FAR), empty(other), empty(CPU)
        between = Memory(first.desc, CPU)
        with DEVICE.held():
            event = doubling(FAR).execute(Stream(FAR), {Arg.SRC: first, Arg.DST: first})
            args = {Arg.SRC: second, Arg.DST: second}
            second.write(VALUES.view(np.uint8).reshape(-1))
            later = doubling(other).execute(Stream(other), args, after=[event])
            assert not later.done
        args = {Arg.SRC: between, Arg.DST: third}
        between.write(second.read())
        doubling(CPU).execute(Stream(CPU, 1), args, after=[later, event])
        assert event.done
        assert (third.numpy() == doubled(2)).all()
        assert (first.numpy() == doubled(1)).all()
        after_cpu = doubling(FAR).execute(
            Stream(FAR), {Arg.SRC: first, Arg.DST: first}, after=[COMPLETE]
        )
        after_cpu.wait()
        assert (first.numpy() == doubled(2)).all()


def test_a_copy_between_engines_waits_for_what_it_copies() -> None:
    there, here = memory(FAR), empty(CPU)
    desc = ReorderDesc(there.desc, here.desc)
    home = Primitive(PrimitiveDesc(desc, CPU, src_engine=FAR))
    event = doubling(FAR).execute(Stream(FAR), {Arg.SRC: there, Arg.DST: there})
    assert home.execute(Stream(CPU), {Arg.SRC: there, Arg.DST: here}, after=[event]).done
    assert event.done
    assert (here.numpy() == doubled(1)).all()


class TestFailure:
    def test_an_event_raises_the_error_of_its_execution(self) -> None:
        stream, args = Stream(FAR), {Arg.SRC: memory(FAR), Arg.DST: empty(FAR)}
        DEVICE.failure = RuntimeError("the device is on fire")
        event = doubling(FAR).execute(stream, args)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="on fire"):
                event.wait()
        assert event.done
        with pytest.raises(RuntimeError, match="on fire"):
            stream.wait()
        stream.wait()
        doubling(FAR).execute(stream, args).wait()
        assert (args[Arg.DST].numpy() == doubled(1)).all()

    @EITHER_ORDER
    def test_what_is_after_it_does_not_run(self, in_order: bool) -> None:
        stream, result = Stream(FAR, in_order=in_order), empty(FAR)
        other = Stream(FAR, in_order=False)
        with DEVICE.held():
            DEVICE.failure = RuntimeError("on fire")
            first = doubling(FAR).execute(stream, {Arg.SRC: memory(FAR), Arg.DST: empty(FAR)})
            after = () if in_order else [first]
            args = {Arg.SRC: memory(FAR), Arg.DST: result}
            second = doubling(FAR).execute(stream, args, after)
            third = doubling(FAR).execute(other, args, after=[second])
        for event in (third, second, first):
            with pytest.raises(RuntimeError, match="on fire"):
                event.wait()
        assert np.isnan(result.numpy()).all()

    @pytest.mark.parametrize("how", ["execute", "bind", "across"])
    def test_the_cpu_raises_it_at_once(self, how: str) -> None:
        source, target = memory(FAR if how == "across" else CPU), empty(CPU)
        args = {Arg.SRC: source, Arg.DST: target}
        primitive, stream = doubling(CPU), Stream(CPU)
        if how == "across":
            desc = ReorderDesc(source.desc, target.desc)
            primitive = Primitive(PrimitiveDesc(desc, CPU, src_engine=FAR))
        DEVICE.failure = RuntimeError("on fire")
        far = {Arg.SRC: memory(FAR), Arg.DST: empty(FAR)}
        failed = doubling(FAR).execute(Stream(FAR), far)
        run = primitive.bind(stream, args)
        call = run if how == "bind" else partial(primitive.execute, stream, args)
        with pytest.raises(RuntimeError, match="on fire"):
            call(after=[failed])
        assert np.isnan(target.numpy()).all()


class TestMemory:
    @pytest.mark.parametrize(
        "read",
        [
            lambda result: result.numpy(),
            np.asarray,
            lambda result: result.read().view(np.float32).reshape(SHAPE),
            lambda result: result.reorder_to("ba").numpy(),
        ],
        ids=["numpy", "asarray", "read", "reorder_to"],
    )
    def test_who_reads_it_waits(self, read: Callable[[Memory], Any]) -> None:
        stream, result = Stream(FAR, in_order=False), empty(FAR)
        doubling(FAR).execute(stream, {Arg.SRC: memory(FAR), Arg.DST: result})
        assert (read(result) == doubled(1)).all()

    def test_who_writes_it_waits(self) -> None:
        source, result = memory(FAR), empty(FAR)
        doubling(FAR).execute(Stream(FAR), {Arg.SRC: source, Arg.DST: result})
        source.write(np.zeros(source.desc.size, np.uint8))
        assert (result.numpy() == doubled(1)).all()

    def test_it_lives_until_nothing_uses_it(self) -> None:
        result = empty(FAR)
        freed = len(DEVICE.freed)
        with DEVICE.held():
            event = doubling(FAR).execute(Stream(FAR), {Arg.SRC: memory(FAR), Arg.DST: result})
            gc.collect()
            assert len(DEVICE.freed) in (freed, DEVICE.freed.maxlen)
        event.wait()
        assert (result.numpy() == doubled(1)).all()

    def test_parts_of_one_buffer_are_told_apart(self) -> None:
        whole = Memory(MemoryDesc((100,), "f32"), FAR)
        desc = MemoryDesc((40,), "f32")
        at = whole.buffer.offset
        parts = [
            Memory(desc, FAR, whole.buffer._replace(offset=at + 4 * first)) for first in (0, 40, 60)
        ]
        parts[0].write(VALUES[0].view(np.uint8))
        primitive, stream = doubling(FAR, (40,)), Stream(FAR)
        primitive.execute(stream, {Arg.SRC: parts[0], Arg.DST: parts[1]})
        assert (parts[1].numpy() == doubled(1)[0]).all()
        rest = whole.read()[320:]
        assert (rest == FRESH).all()
        with pytest.raises(InvalidArguments, match="must not share memory with SRC"):
            primitive.execute(stream, {Arg.SRC: parts[1], Arg.DST: parts[2]})
        primitive.execute(stream, {Arg.SRC: parts[1], Arg.DST: parts[1]})
        assert (parts[1].numpy() == doubled(2)[0]).all()


class TestScratchpad:
    """Batch normalization keeps its factors in one."""

    def launches(self, streams: list[Stream]) -> tuple[list[Launch], list[Memory], list[object]]:
        """One on each stream, with what comes out and the blocks of the scratchpads."""
        data, line = MemoryDesc((2, 19, 3, 3), "f32"), MemoryDesc((19,), "f32")
        desc = BatchNormalizationDesc.forward(FORWARD, data, data, 0.0, "use_global_stats")
        primitive = Primitive(PrimitiveDesc(desc, FAR))
        assert not primitive.pd.scratchpad_desc.is_zero
        events, results, blocks = [], [], []
        with DEVICE.held():
            for number, stream in enumerate(streams):
                args = {
                    Arg.SRC: memory(FAR, np.ones(data.dims, np.float32)),
                    Arg.MEAN: memory(FAR, np.zeros(line.dims, np.float32)),
                    Arg.VARIANCE: memory(FAR, np.full(line.dims, 4.0**number, np.float32)),
                    Arg.DST: empty(FAR, data.dims),
                }
                event = primitive.execute(stream, args)
                assert isinstance(event, Launch)
                own = {id(each.buffer.handle) for each in args.values()}
                used = [each.handle for each in event.arguments if id(each.handle) not in own]
                blocks.append(used[0])
                events.append(event)
                results.append(args[Arg.DST])
        return events, results, blocks

    @pytest.mark.parametrize("streams", [1, 3])
    def test_launches_that_may_overlap_have_their_own(self, streams: int) -> None:
        made = [Stream(FAR, in_order=False) for _ in range(streams)]
        events, results, blocks = self.launches([made[i % streams] for i in range(6)])
        assert len({id(block) for block in blocks}) == len(events)
        for number, result in enumerate(results):
            np.testing.assert_allclose(result.numpy(), 0.5**number, rtol=1e-6)

    def test_launches_in_order_share_one(self) -> None:
        _, results, blocks = self.launches([Stream(FAR)] * 6)
        assert len({id(block) for block in blocks}) == 1
        for number, result in enumerate(results):
            np.testing.assert_allclose(result.numpy(), 0.5**number, rtol=1e-6)

    def test_one_that_is_done_gives_it_back(self) -> None:
        data = MemoryDesc((2, 19, 3, 3), "f32")
        desc = BatchNormalizationDesc.forward(FORWARD, data, data, 0.0, "use_global_stats")
        primitive = Primitive(PrimitiveDesc(desc, FAR))
        line = np.ones(19, np.float32)
        args = {Arg.SRC: empty(FAR, data.dims), Arg.DST: empty(FAR, data.dims)}
        args |= {Arg.MEAN: memory(FAR, line), Arg.VARIANCE: memory(FAR, line)}
        seen = set()
        for _ in range(4):
            with DEVICE.held():
                event = primitive.execute(Stream(FAR, in_order=False), args)
                assert isinstance(event, Launch)
                seen |= {each.handle for each in event.arguments}
            event.wait()
        assert len(seen) == len(args) + 1


@EITHER_ORDER
def test_calls_of_a_binding_follow_each_other(in_order: bool) -> None:
    place = memory(FAR)
    run = doubling(FAR).bind(Stream(FAR, in_order=in_order), {Arg.SRC: place, Arg.DST: place})
    first = doubling(FAR).execute(Stream(FAR), {Arg.SRC: place, Arg.DST: place})
    events = [run(after=[first]), *(run() for _ in range(4))]
    assert all(isinstance(event, Event) for event in events)
    assert (place.numpy() == doubled(6)).all()
    with DEVICE.held():
        DEVICE.failure = RuntimeError("on fire")
        events = [run() for _ in range(3)]
    for event in events:
        with pytest.raises(RuntimeError, match="on fire"):
            event.wait()
    if not in_order:  # a stream in order begins anew when its error was told
        run().wait()
        assert (place.numpy() == doubled(7)).all()


@EITHER_ENGINE
def test_tensors_without_elements_have_events_too(engine: Engine) -> None:
    primitive, nothing = doubling(engine, (3, 0)), empty(engine, (3, 0))
    args = {Arg.SRC: nothing, Arg.DST: empty(engine, (3, 0))}
    stream = Stream(engine, in_order=False)
    before = doubling(engine).execute(stream, {Arg.SRC: memory(engine), Arg.DST: empty(engine)})
    event = primitive.execute(stream, args, after=[before])
    event.wait()
    assert before.done
    primitive.bind(stream, args)().wait()


def test_a_verbose_line_tells_the_time_of_the_whole_execution(
    capsys: pytest.CaptureFixture[str],
) -> None:
    args = {Arg.SRC: memory(FAR), Arg.DST: empty(FAR)}
    primitive, stream = doubling(FAR), Stream(FAR)
    with config.override("verbose", "profile_exec"):
        assert primitive.execute(stream, args).done
        DEVICE.failure = RuntimeError("on fire")
        event = primitive.execute(stream, args)
    assert capsys.readouterr().out.count("primitive,exec,far,eltwise") == 2
    with pytest.raises(RuntimeError, match="on fire"):
        event.wait()
