"""Reorders of two memories in one call: the primitive is made once for each pair of layouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache

from dnnl import config
from dnnl.errors import InvalidArguments
from dnnl.primitives.primitive import Primitive
from dnnl.primitives.primitive_desc import PrimitiveDesc
from dnnl.primitives.reorder import ReorderDesc
from dnnl.primitives.slots import check_mapping
from dnnl.runtime.engine import Engine
from dnnl.runtime.event import Event
from dnnl.runtime.memory import Memory
from dnnl.runtime.stream import Stream
from dnnl.types.arg import Arg
from dnnl.types.attr import PrimitiveAttr
from dnnl.types.memory_desc import MemoryDesc

_KEPT = 1024  # primitives at hand
_NONE: Mapping[int, Memory] = {}


@dataclass(frozen=True)
class _Attributes:
    """Attributes that are equal where their keys are."""

    key: object
    attr: PrimitiveAttr = field(compare=False)


def reorder(
    src: Memory,
    dst: Memory,
    stream: Stream | None = None,
    attr: PrimitiveAttr | None = None,
    args: Mapping[int, Memory] = _NONE,
) -> Event:
    """Write the tensor of ``src`` into ``dst``, which says the layout and the data type.

    Dims must be equal; the padding of dst is zero afterwards. The memories may be on different
    engines. ``attr`` and ``args``, the memories of its scales, zero points and operands, are those
    of a :class:`ReorderDesc`.

    Without ``stream`` the work is done when this returns, and its errors are raised. With one,
    which must be of the engine that executes, it is submitted there; the event is its end.
    """
    for name, memory in (("src", src), ("dst", dst)):
        if not isinstance(memory, Memory):
            rule = "expected a dnnl.Memory"
            hint = "wrap arrays with dnnl.Memory.from_numpy"
            raise InvalidArguments(name, type(memory).__name__, rule, hint)
    if not isinstance(attr, PrimitiveAttr | None):
        raise InvalidArguments("attr", attr, "expected a dnnl.PrimitiveAttr or None")
    check_mapping(args)
    given = None if attr is None else _Attributes(attr.key, attr)
    isa = config.get("max_cpu_isa")
    primitive = _primitive(src.desc, dst.desc, src.engine, dst.engine, given, isa)
    memories = {Arg.FROM: src, Arg.TO: dst, **args} if args else {Arg.FROM: src, Arg.TO: dst}
    if stream is not None:
        return primitive.execute(stream, memories)
    event = primitive.execute(_stream(primitive.pd.engine), memories)
    event.wait()
    return event


@lru_cache(_KEPT)
def _primitive(
    src: MemoryDesc,
    dst: MemoryDesc,
    src_engine: Engine,
    dst_engine: Engine,
    given: _Attributes | None,
    isa: str,  # which a primitive depends on
) -> Primitive:
    attr = None if given is None else given.attr
    pd = PrimitiveDesc(ReorderDesc(src, dst), dst_engine, attr, src_engine=src_engine)
    return Primitive(pd)


@cache
def _stream(engine: Engine) -> Stream:
    return Stream(engine)
