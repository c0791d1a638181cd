"""Executions with memories on another engine than the one that executes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dnnl.errors import InvalidArguments
from dnnl.primitives.primitive_desc import PrimitiveDesc
from dnnl.primitives.slots import Arguments, check_mapping
from dnnl.runtime.event import COMPLETE, Event, wait_for
from dnnl.runtime.memory import Memory
from dnnl.types.arg import name_of


class Transfer:
    """Copies of such memories on the engine that executes; ``args`` has them in their place."""

    def __init__(self, pd: PrimitiveDesc, args: Arguments) -> None:
        check_mapping(args)
        self.args = dict(args)
        self._copies: list[tuple[Memory, Memory, bool]] = []
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
            self._copies.append((memory, copy, tensor.output))

    def around(self, run: Callable[[], Event]) -> Callable[..., Event]:
        """``run`` between copying in and copying out; all is done when it returns.

        What is only written is copied in as well: it may have gaps, which stay as they are.
        """

        def execute(after: Sequence[Event] = ()) -> Event:
            wait_for(after)
            for memory, copy, _ in self._copies:
                copy.write(memory.read())
            run().wait()
            for memory, copy, written in self._copies:
                if written:
                    memory.write(copy.read())
            return COMPLETE

        return execute
