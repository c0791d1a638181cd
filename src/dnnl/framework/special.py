"""Plans for single sizes of a model with open sizes: which exist, and when one is compiled."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any, Generic, TypeVar

from dnnl import config
from dnnl.errors import InvalidArguments
from dnnl.framework.session import Session
from dnnl.graph.expressions import Numbers

Key = TypeVar("Key")
Own = TypeVar("Own", bound=Session)

_KNOB = "special_kernels"


@dataclass(frozen=True)
class SpecialKernels:
    """When calls of a model get kernels that are specialized for their sizes.

    A plan for open sizes serves every size, with kernels that read sizes from memory. ``when`` is
    "often", "always", "never", or None for the value of the environment variable
    DNNL_SPECIAL_KERNELS, whose default is "often":

    - often: when the runs of one size have taken ``seconds`` in total, another process compiles a
      plan for it at the lowest priority. The first call after that uses the plan;
    - always: the first call of each size compiles a plan for it, and waits;
    - never: only the first size of a model has a plan of its own.

    ``most`` bounds the number of such plans, in each part of a model with data-dependent sizes. The
    least recently used plan is dropped.

    Raises InvalidArguments for another ``when``, for ``seconds`` that are no finite number >= 0,
    and for ``most`` that is no integer >= 1.
    """

    when: str | None = None
    seconds: float = 20.0
    most: int = 8

    def __post_init__(self) -> None:
        if self.when is not None:
            object.__setattr__(self, "when", config.parsed(_KNOB, "when", self.when))
        given: object = self.seconds
        number = isinstance(given, int | float) and not isinstance(given, bool)
        if not number or not isfinite(self.seconds) or self.seconds < 0:
            rule = "must be a number of seconds >= 0"
            raise InvalidArguments("seconds", self.seconds, rule, "when='never' gives none")
        if type(self.most) is not int or self.most < 1:
            raise InvalidArguments("most", self.most, "must be an integer >= 1")

    @property
    def decided(self) -> str:
        """``when``, or the value of DNNL_SPECIAL_KERNELS."""
        return config.get(_KNOB) if self.when is None else self.when


def checked_policy(policy: object) -> SpecialKernels:
    """``policy``; raises InvalidArguments if it is no SpecialKernels."""
    if not isinstance(policy, SpecialKernels):
        hint = "dnnl.SpecialKernels('never')"
        raise InvalidArguments("policy", policy, "expected a dnnl.SpecialKernels", hint)
    return policy


@dataclass(slots=True)
class Use(Generic[Own]):
    """The plan that serves certain shapes and contents, and the total ``seconds`` of its runs. At
    ``limit`` seconds these shapes get a plan of their own. ``is_over`` is set when another plan may
    serve them."""

    session: Own
    numbers: Numbers
    limit: float = inf
    seconds: float = 0.0
    is_over: bool = False

    def ran(self, seconds: float) -> bool:
        """Add the time of a run. Returns True once, when the limit is reached."""
        self.seconds += seconds
        if self.seconds < self.limit:
            return False
        self.limit = inf
        return True


class SpecialPlans(Generic[Key, Own]):
    """A cache of plans for one size each, by key. The owner's lock must be held during calls."""

    def __init__(self, policy: SpecialKernels) -> None:
        self._most = policy.most
        self._sessions: OrderedDict[Key, Own] = OrderedDict()

    @property
    def sessions(self) -> tuple[Own, ...]:
        """All plans."""
        return tuple(self._sessions.values())

    def find(self, key: Key) -> Own | None:
        """The plan for ``key``, which becomes the most recently used; None if there is none."""
        found = self._sessions.get(key)
        if found is not None:
            self._sessions.move_to_end(key)
        return found

    def add(self, key: Key, session: Own) -> list[Own]:
        """Add a plan; returns the plans that were dropped for it."""
        self._sessions[key] = session
        self._sessions.move_to_end(key)
        excess = max(0, len(self._sessions) - self._most)
        return [self._sessions.popitem(last=False)[1] for _ in range(excess)]


class Uses(Generic[Key, Own]):
    """A cache of the plans that serve recent keys; it has at most ``most`` entries."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._uses: OrderedDict[Key, Use[Own]] = OrderedDict()

    def find(self, key: Key) -> Use[Own] | None:
        """The use for ``key``, which becomes the most recently used; None if there is none."""
        found = self._uses.get(key)
        if found is not None:
            self._uses.move_to_end(key)
        return found

    def add(self, key: Key, use: Use[Own]) -> Use[Own]:
        """Add a use, and drop the least recently used one if there are too many."""
        self._uses[key] = use
        if len(self._uses) > self._most:
            _, gone = self._uses.popitem(last=False)
            gone.is_over = True
        return use

    def forget(self, *, key: Any = None, sessions: list[Own] | None = None) -> None:
        """Drop the use of ``key``, and the uses of ``sessions``."""
        gone = sessions or ()
        for own in [k for k, use in self._uses.items() if k == key or use.session in gone]:
            self._uses.pop(own).is_over = True
