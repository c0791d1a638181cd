"""Executions with memories on another engine than the one that executes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dnnl.errors import InvalidArguments
from dnnl.primitives.primitive_desc import PrimitiveDesc
from dnnl.primitives.slots import Arguments, check_mapping
from dnnl.runtime.event import COMPLETE, Event, wait_for
from dnnl.runtime.memory import Memory
from dnnl.types.arg import name_of
from dnnl.types.memory_desc import MemoryDesc
from dnnl.types.post_ops import PostOpSum


class Transfer:
    """Copies of such memories on the engine that executes; ``args`` has them in their place."""

    def __init__(self, pd: PrimitiveDesc, args: Arguments) -> None:
        check_mapping(args)
        self.args = dict(args)
        self._read: list[tuple[Memory, Memory]] = []
        self._written: list[tuple[Memory, Memory]] = []
        sums = any(isinstance(entry, PostOpSum) for entry in pd.attr.post_ops)
        for tensor in pd.desc.tensors:
            engine, memory = pd.engine_of(tensor.argument), args.get(tensor.argument)
            if engine == pd.engine or not isinstance(memory, Memory):
                continue
            if memory.engine != engine:
                rule = f"its memory must be on {engine!r}"
                where = f"args[{name_of(tensor.argument)}]"
                raise InvalidArguments(where, memory.engine, rule)
            copy = Memory(memory.desc, pd.engine)
            self.args[tensor.argument] = copy
            if tensor.output:
                self._written.append((copy, memory))
            if not tensor.output or sums or _has_gaps(memory.desc):
                self._read.append((memory, copy))

    def around(self, run: Callable[[], Event]) -> Callable[..., Event]:
        """``run`` between copying in and copying out; all is done when it returns."""

        def execute(after: Sequence[Event] = ()) -> Event:
            wait_for(after)
            for memory, copy in self._read:
                copy.write_from(memory)
            run().wait()
            for copy, memory in self._written:
                memory.write_from(copy)
            return COMPLETE

        return execute


def _has_gaps(desc: MemoryDesc) -> bool:
    """Whether an execution may leave bytes of a memory as they are."""
    whole = desc.is_dense(padded=True) and desc.offset0 == 0
    return not whole or desc.compensation is not None or desc.data_type.bits < 8
