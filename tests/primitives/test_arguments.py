"""What an execution takes: what is refused, at first and after executions that went well.

What an argument must be is compared with what the last one was, so every refusal is tried on a
primitive that has executed.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from dnnl import (
    Arg,
    BatchNormalizationDesc,
    BinaryDesc,
    EltwiseDesc,
    Engine,
    InvalidArguments,
    Memory,
    MemoryDesc,
    PoolingDesc,
    Primitive,
    PrimitiveAttr,
    PrimitiveDesc,
    ReorderDesc,
    Stream,
)
from dnnl.runtime.backend import Executable, Queue
from dnnl.runtime.event import COMPLETE, Event
from dnnl.types.arg import name_of
from tests.primitives.harness import ENGINE, describe, source, vector

STREAM = Stream(ENGINE, 1)
DIMS = (2, 3, 4, 5)
SIZE = 4 * 2 * 3 * 4 * 5
FORWARD = "forward_inference"


def relu() -> Primitive:
    desc = describe(DIMS, "nchw")
    eltwise = EltwiseDesc.forward(FORWARD, "eltwise_relu", desc, desc)
    return Primitive(PrimitiveDesc(eltwise, ENGINE))


class TestRelu:
    src = source(DIMS, "nchw")
    dst = Memory(describe(DIMS, "nchw"), ENGINE)

    @pytest.fixture(params=["new", "executed"])
    def primitive(self, request: pytest.FixtureRequest) -> Primitive:
        made = relu()
        if request.param == "executed":
            for _ in range(2):
                made.execute(STREAM, {Arg.SRC: self.src, Arg.DST: self.dst})
        return made

    @pytest.mark.parametrize("how", ["execute", "bind"])
    def test_missing(self, primitive: Primitive, how: str) -> None:
        call = getattr(primitive, how)
        with pytest.raises(InvalidArguments, match=r"args\[DST\].*missing.*\(2, 3, 4, 5\)"):
            call(STREAM, {Arg.SRC: self.src})

    @pytest.mark.parametrize(
        ("argument", "remedy"),
        [
            (Arg.SCALES | Arg.DST, r"it takes SRC and DST; attr.set_scales\('DST', ...\)"),
            (Arg.ZERO_POINTS | Arg.SRC, r"attr.set_zero_points\('SRC', ...\) asks for it"),
            (Arg.post_op(1) | Arg.SRC_1, "there is no post-op"),
            (Arg.SCRATCHPAD, "PrimitiveAttr(.*user.*) asks for it"),
            (Arg.DROPOUT_SEED, "attr.set_dropout(.*) asks for it"),
            (Arg.HINT_MAX_GROUP_SIZE, "a matmul of grouped tensors does"),
        ],
        ids=lambda value: name_of(value) if isinstance(value, int) else "",
    )
    def test_what_would_be_taken(self, primitive: Primitive, argument: int, remedy: str) -> None:
        args = {Arg.SRC: self.src, Arg.DST: self.dst, argument: self.src}
        rule = rf"args\[{re.escape(name_of(argument))}\] = 'f32::.*\(2, 3, 4, 5\).*{remedy}"
        for call in (primitive.execute, primitive.bind):
            with pytest.raises(InvalidArguments, match=rule):
                call(STREAM, args)

    def test_none_and_the_zero_descriptor_are_no_argument(self, primitive: Primitive) -> None:
        absent: list[Any] = [None, Memory(MemoryDesc.zero(), ENGINE)]
        for call in (primitive.execute, primitive.bind, primitive):
            for none in absent:
                call(STREAM, {Arg.SRC: self.src, Arg.DST: self.dst, Arg.BIAS: none})

    def test_another_layout_hints_at_reorder(self, primitive: Primitive) -> None:
        with pytest.raises(InvalidArguments, match=r"args\[SRC\].*acdb.*reorder_to"):
            primitive.execute(STREAM, {Arg.SRC: source(DIMS, "nhwc"), Arg.DST: self.dst})

    def test_another_shape(self, primitive: Primitive) -> None:
        other = source((2, 3, 4, 6), "nchw")
        with pytest.raises(InvalidArguments, match=r"args\[SRC\].*\(2, 3, 4, 6\)"):
            primitive.execute(STREAM, {Arg.SRC: other, Arg.DST: self.dst})

    def test_another_engine(self, primitive: Primitive) -> None:
        null = Engine("null")
        with pytest.raises(InvalidArguments, match=r"args\[DST\].*must be on Engine\('cpu', 0\)"):
            primitive.execute(STREAM, {Arg.SRC: self.src, Arg.DST: Memory(self.dst.desc, null)})
        with pytest.raises(InvalidArguments, match=r"must be a stream of Engine\('cpu', 0\)"):
            primitive.execute(Stream(null), {Arg.SRC: self.src, Arg.DST: self.dst})

    def test_an_equal_descriptor_and_an_equal_engine_are_fine(self, primitive: Primitive) -> None:
        for _ in range(2):
            dst = Memory(MemoryDesc(DIMS, "f32", "nchw"), Engine("cpu"))
            primitive.execute(Stream(Engine("cpu")), {Arg.SRC: self.src, Arg.DST: dst})
            np.testing.assert_array_equal(dst.numpy(), np.maximum(self.src.numpy(), 0))

    def test_an_array_is_no_memory(self, primitive: Primitive) -> None:
        args = {Arg.SRC: self.src.numpy(), Arg.DST: self.dst}
        with pytest.raises(InvalidArguments, match=r"args\[SRC\].*dnnl.Memory.*from_numpy"):
            primitive.execute(STREAM, args)  # type: ignore[arg-type]

    @pytest.mark.parametrize("how", ["execute", "bind"])
    def test_a_read_only_memory_is_a_source_alone(self, primitive: Primitive, how: str) -> None:
        call = getattr(primitive, how)
        fixed = Memory(self.src.desc, ENGINE, bytes(self.src.data))
        call(STREAM, {Arg.SRC: fixed, Arg.DST: self.dst})
        for _ in range(2):  # also where a writable memory had the same address before
            writable = Memory(self.dst.desc, ENGINE, self.dst.data)
            call(STREAM, {Arg.SRC: fixed, Arg.DST: writable})
            bits = self.dst.data.view()
            bits.flags.writeable = False
            with pytest.raises(InvalidArguments, match=r"args\[DST\].*eltwise writes.*read-only"):
                call(STREAM, {Arg.SRC: fixed, Arg.DST: Memory(self.dst.desc, ENGINE, bits)})

    @pytest.mark.parametrize("distance", [-SIZE, -SIZE + 4, -4, 0, 4, SIZE - 4, SIZE])
    def test_overlap(self, primitive: Primitive, distance: int) -> None:
        """Refused but in place; buffers that touch each other are fine."""
        buffer = np.zeros(3 * SIZE, np.uint8)
        src = Memory(self.src.desc, ENGINE, buffer[SIZE + distance : 2 * SIZE + distance])
        args = {Arg.SRC: src, Arg.DST: Memory(self.dst.desc, ENGINE, buffer[SIZE : 2 * SIZE])}
        if distance in (-SIZE, 0, SIZE):
            primitive.execute(STREAM, args)
            return
        rule = r"args\[DST\].*share memory with SRC; in place is possible with SRC, of the same"
        with pytest.raises(InvalidArguments, match=rule):
            primitive.execute(STREAM, args)


def test_in_place_is_refused_where_the_operation_cannot() -> None:
    src = describe((1, 1, 4, 4), "nchw")
    desc = PoolingDesc.forward(FORWARD, "pooling_max", src, src, (1, 1), (3, 3), (1, 1))
    memory = source((1, 1, 4, 4), "nchw")
    rule = "share memory with SRC; DST of pooling is never written in place"
    with pytest.raises(InvalidArguments, match=rule):
        Primitive(PrimitiveDesc(desc, ENGINE)).execute(STREAM, {Arg.SRC: memory, Arg.DST: memory})


def test_in_place_is_refused_between_layouts() -> None:
    a, b = source((4, 4), "ab"), source((4, 4), "ba", 2)
    desc = BinaryDesc("binary_add", a.desc, b.desc, MemoryDesc((4, 4), "f32", "ba"))
    dst = Memory(desc.dst_desc, ENGINE, a.data)
    with pytest.raises(InvalidArguments, match="share memory with SRC"):
        Primitive(PrimitiveDesc(desc, ENGINE)).execute(
            STREAM, {Arg.SRC_0: a, Arg.SRC_1: b, Arg.DST: dst}
        )


def test_a_scratchpad_of_the_users_shares_nothing() -> None:
    data = describe((2, 19, 3, 3), "nchw")
    desc = BatchNormalizationDesc.forward(FORWARD, data, data, 1e-5, "use_global_stats")
    pd = PrimitiveDesc(desc, ENGINE, PrimitiveAttr(scratchpad_mode="user"))
    src = source((2, 19, 3, 3), "nchw")
    args = {
        Arg.SRC: src,
        Arg.DST: Memory(data, ENGINE),
        Arg.MEAN: vector(19, 1),
        Arg.VARIANCE: vector(19, 2),
        Arg.SCRATCHPAD: Memory(pd.scratchpad_desc, ENGINE, src.data[: pd.scratchpad_desc.size]),
    }
    rule = r"args\[SCRATCHPAD\].*with SRC; SCRATCHPAD of batch_normalization is never written"
    with pytest.raises(InvalidArguments, match=rule):
        Primitive(pd).execute(STREAM, args)


class TestScales:
    src = source((3, 4), "ab")

    @pytest.fixture
    def execute(self) -> Callable[[Sequence[int]], Any]:
        """An execution with scales of some shape, one for each row; always of one primitive."""
        attr = PrimitiveAttr()
        attr.set_scales(Arg.SRC, 1)
        desc = ReorderDesc(self.src.desc, self.src.desc)
        primitive = Primitive(PrimitiveDesc(desc, ENGINE, attr))

        def run(dims: Sequence[int]) -> None:
            scales = np.arange(1, np.prod(dims) + 1, dtype=np.float32)
            args: dict[int, Memory] = {Arg.SRC: self.src, Arg.DST: Memory(self.src.desc, ENGINE)}
            args[Arg.SCALES | Arg.SRC] = Memory.from_numpy(scales.reshape(dims))
            primitive.execute(STREAM, args)
            want = self.src.numpy() * scales[:, None]
            np.testing.assert_allclose(args[Arg.DST].numpy(), want, rtol=1e-6)

        return run

    def test_shapes_that_lie_alike_take_turns(self, execute: Callable[..., Any]) -> None:
        for dims in [(3,), (3, 1), (1, 3), (3,), (3,)]:
            execute(dims)

    @pytest.mark.parametrize("dims", [(4,), (2,), (1,), (3, 2)])
    def test_wrong_ones_are_refused_behind_right_ones(
        self, execute: Callable[..., Any], dims: tuple[int, ...]
    ) -> None:
        execute((3, 1))
        for _ in range(2):
            with pytest.raises(InvalidArguments, match=r"args\[SCALES\|SRC\] = "):
                execute(dims)


class _Fleeting(Mapping[int, Memory]):
    """Arguments that nobody keeps: each look-up makes a memory, of which only the first is good."""

    def __init__(self) -> None:
        self.made: list[weakref.ref[Memory]] = []

    def __getitem__(self, key: int) -> Memory:
        memory = Memory(describe(DIMS, "nchw"), ENGINE)
        self.made.append(weakref.ref(memory))
        return memory

    def __iter__(self) -> Iterator[int]:
        return iter((Arg.SRC, Arg.DST))

    def __len__(self) -> int:
        return 2

    @property
    def alive(self) -> bool:
        return all(reference() is not None for reference in self.made)


class _Witness(Queue[Executable]):
    """Whether the memories of a launch were there."""

    def __init__(self, args: _Fleeting) -> None:
        self.args, self.seen = args, False
        self.kept: list[object] = []

    def submit(
        self,
        executable: Executable,
        arguments: Sequence[int],
        threads: int,
        after: Sequence[Event] = (),
    ) -> Event:
        memories = [reference() for reference in self.args.made]
        self.seen = [memory and memory.pointer for memory in memories] == list(arguments)
        return COMPLETE

    def bind(
        self, executable: Executable, arguments: Sequence[int], threads: int, keep: object
    ) -> Callable[..., Event]:
        self.kept.append(keep)
        return super().bind(executable, arguments, threads, keep)

    def wait(self) -> None:
        """Everything is done."""


@pytest.mark.parametrize("how", ["execute", "bind"])
def test_what_was_checked_lives_as_long_as_it_is_used(how: str) -> None:
    primitive, args, stream = relu(), _Fleeting(), Stream(ENGINE, 1)
    stream.queue = witness = _Witness(args)
    if how == "execute":
        primitive.execute(stream, args)
    else:
        primitive.bind(stream, args)()
    assert witness.seen
    witness.kept.clear()
    assert not args.alive
