"""Running what the shared tests execute on processors of another architecture."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import pytest

from dnnl import Memory, Primitive, PrimitiveDesc, Stream
from dnnl.primitives import primitive, primitive_desc
from dnnl.primitives.primitive_desc import select_isa
from dnnl.primitives.slots import Arguments
from dnnl.runtime.backend import Executable
from dnnl.runtime.engine import Engine
from dnnl.runtime.engines import cpu
from dnnl.runtime.event import Event, wait_for


@contextmanager
def instead(engine: Engine) -> Iterator[None]:
    """Within it, whatever engine a description names, it is made for the processor of ``engine``,
    and that executes it, on copies of the memories."""
    row, execute, bind = select_isa(engine), Primitive.execute, Primitive.bind

    def stays(own: Primitive) -> bool:
        return own.pd.engine == engine or own.pd.across_engines

    def elsewhere(
        own: Primitive, stream: Stream, args: Arguments, after: Sequence[Event] = ()
    ) -> Event:
        if stays(own):
            return execute(own, stream, args, after)
        own._checked(stream, args)
        wait_for(after)
        there = Primitive(PrimitiveDesc(own.pd.desc, engine, own.pd.attr))
        given = dict(args)
        copies = {memory.argument: _copy(memory, engine) for memory in given.values()}
        moved = {arg: copies[memory.argument] for arg, memory in given.items()}
        event = execute(there, Stream(engine, stream.num_threads), moved)
        for memory in given.values():
            copied = copies[memory.argument]
            for part, back in zip(memory.parts, copied.parts, strict=True):
                if not part.readonly:
                    part.write(back.read())
        return event

    def bound(own: Primitive, stream: Stream, args: Arguments) -> Callable[..., Event]:
        if stays(own):
            return bind(own, stream, args)
        return partial(elsewhere, own, stream, args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(primitive_desc, "select_isa", lambda _: row)
        patch.setattr(cpu.Engine, "load", lambda *_: Executable())
        patch.setattr(Primitive, "execute", elsewhere)
        patch.setattr(Primitive, "bind", bound)
        yield
    primitive._cache.clear()


def _copy(memory: Memory, engine: Engine) -> Memory:
    copy = Memory(memory.desc, engine)
    for own, part in zip(copy.parts, memory.parts, strict=True):
        own.write(part.read())
    return copy
