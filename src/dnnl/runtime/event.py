"""Events: when an execution is over, and whether it went well."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

from dnnl.errors import InvalidArguments


class Event(ABC):
    """The end of one execution, as `Primitive.execute` and bound calls return it.

    An execution fails if it cannot run, and if one that it is ``after`` failed. Then it leaves its
    outputs undefined, and its event holds the error.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether the execution is over, well or not."""

    @property
    def failed(self) -> bool:
        """Whether it is known already that the execution failed, as one that could not be
        launched."""
        return False

    @abstractmethod
    def wait(self) -> None:
        """Return when the execution is over; raise its error, at each call, if it failed."""

    @property
    def seconds(self) -> float | None:
        """What the execution took by the device's clock, once it is over; None where nothing
        measures it: on a stream without ``profiling``, or a device without a clock."""
        return None


class _Complete(Event):
    __slots__ = ()

    @property
    def done(self) -> bool:
        return True

    def wait(self) -> None:
        """Returns at once."""

    def __repr__(self) -> str:
        return "<Event: done>"


#: The event of every execution that is over, and went well, when its submission returns.
COMPLETE: Final[Event] = _Complete()

#: The default of what an execution is after; one object, which is recognized at once.
NOTHING: Final[Sequence[Event]] = ()


def checked_events(events: object) -> Sequence[Event]:
    """The events themselves; `InvalidArguments` for anything but several events."""
    if isinstance(events, Event) or not isinstance(events, Sequence):
        raise InvalidArguments("after", events, "expected a list of events", "after=[event]")
    for event in events:
        if not isinstance(event, Event):
            raise InvalidArguments("after", event, "expected events", "executions return them")
    return events


def wait_for(events: Sequence[Event]) -> None:
    """Return when all are done; raise the error of the first that failed."""
    for event in checked_events(events):
        event.wait()
