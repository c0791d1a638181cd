"""Plans for one size of a model whose sizes are open: which there are, and when one is made."""

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
    """When calls of a model get kernels that are written for their sizes alone.

    A plan for open sizes serves every size, with kernels that read sizes from memory. ``when`` is
    "often", "always", "never", or None for what the environment variable DNNL_SPECIAL_KERNELS says,
    by default "often":

    - often: a size whose runs have taken ``seconds`` in all gets a plan of its own, which another
      process compiles at the lowest priority. The first call after that uses it;
    - always: the first call of each size compiles a plan for it, and waits;
    - never: no size gets one, but the first of a model.

    ``most`` bounds the sizes that have such plans at a time: of each part, where a model decides
    sizes while it runs. The least recently used are given up.

    Raises InvalidArguments for another ``when``, for ``seconds`` that are negative or no number,
    and for ``most`` below 1.
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
        """``when``, or what the environment says."""
        return config.get(_KNOB) if self.when is None else self.when


def checked_policy(policy: object) -> SpecialKernels:
    """A policy; raises InvalidArguments for anything else."""
    if not isinstance(policy, SpecialKernels):
        hint = "dnnl.SpecialKernels('never')"
        raise InvalidArguments("policy", policy, "expected a dnnl.SpecialKernels", hint)
    return policy


@dataclass(slots=True)
class Use(Generic[Own]):
    """A plan as it serves some shapes and contents, and the ``seconds`` that it ran for them. At
    ``limit`` seconds they are due for a plan of their own."""

    session: Own
    numbers: Numbers
    limit: float = inf
    seconds: float = 0.0

    def ran(self, seconds: float) -> bool:
        """Count a run. True once: when a plan is due."""
        self.seconds += seconds
        if self.seconds < self.limit:
            return False
        self.limit = inf
        return True


class SpecialPlans(Generic[Key, Own]):
    """Plans for one size each, by what is known of it. Calls are under a lock of the owner."""

    def __init__(self, policy: SpecialKernels) -> None:
        self._most = policy.most
        self._sessions: OrderedDict[Key, Own] = OrderedDict()

    @property
    def sessions(self) -> tuple[Own, ...]:
        """All of them."""
        return tuple(self._sessions.values())

    def find(self, key: Key) -> Own | None:
        """The plan for ``key``, which is the latest used then."""
        found = self._sessions.get(key)
        if found is not None:
            self._sessions.move_to_end(key)
        return found

    def add(self, key: Key, session: Own) -> list[Own]:
        """Add a plan; the plans that are given up for it."""
        self._sessions[key] = session
        self._sessions.move_to_end(key)
        excess = max(0, len(self._sessions) - self._most)
        return [self._sessions.popitem(last=False)[1] for _ in range(excess)]


class Uses(Generic[Key, Own]):
    """Which plan serves what came lately, the ``most`` latest."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._uses: OrderedDict[Key, Use[Own]] = OrderedDict()

    def find(self, key: Key) -> Use[Own] | None:
        """The use of ``key``, which is the latest then."""
        found = self._uses.get(key)
        if found is not None:
            self._uses.move_to_end(key)
        return found

    def add(self, key: Key, use: Use[Own]) -> Use[Own]:
        """Add a use, and forget the one that has not been found for the longest time."""
        self._uses[key] = use
        if len(self._uses) > self._most:
            self._uses.popitem(last=False)
        return use

    def forget(self, *, key: Any = None, sessions: list[Own] | None = None) -> None:
        """Forget the use of a key, and those of plans that are given up."""
        self._uses.pop(key, None)
        for gone in sessions or ():
            for own in [k for k, use in self._uses.items() if use.session is gone]:
                del self._uses[own]
