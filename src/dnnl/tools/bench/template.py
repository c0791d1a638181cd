"""Templates of performance lines: the meaning of their tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dnnl.language.errors import BadValue
from dnnl.language.options import Driver

DEFAULT_TEMPLATE = (
    "perf,%engine%,%impl%,%name%,%prb%,%Gops%,%+ctime%,%-time%,%-Gflops%,%0time%,%0Gflops%"
)
_HEAD = "perf,%engine%,%impl%,%name%"
_TAIL = "%Gops%,%+ctime%,%-time%,%-Gflops%,%0time%,%0Gflops%"
_TOKEN = re.compile("%([-0+]?)([KMG]?)([a-z_-]+)%")
_UNITS = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9}
_CREATION = ("ctime", "cptime", "cpdtime")
_COUNTED = ("ops", "ibytes", "obytes", "iobytes")
_TIMED = ("time", "bw", "flops")


@dataclass(frozen=True)
class Measured:
    """Times in ms of one case: of each run, and of its creation (description, primitive)."""

    runs: tuple[float, ...] = ()
    creation: tuple[float, float] = (0.0, 0.0)
    ops: int = 0
    input_bytes: int = 0
    output_bytes: int = 0

    def time(self, which: str) -> float:
        """The least (``-``), the mean (``0``) or the greatest (``+``) time of a run."""
        if not self.runs:
            return 0.0
        mean = sum(self.runs) / len(self.runs)
        return {"-": min(self.runs), "0": mean, "+": max(self.runs)}[which]


def find_template(value: str, driver: Driver) -> str:
    """The template that an option names: ``def``, ``csv`` or its text."""
    if value in ("", "def"):
        return DEFAULT_TEMPLATE
    if value == "csv":
        names = [o.name for o in driver.options if not o.name.startswith(("attr-", "ctx-"))]
        known = [name for name in names if name.replace("-", "_") in PLAIN]
        tokens = ",".join(f"%{name.replace('-', '_')}%" for name in known)
        return f"{_HEAD},{tokens},%attr%,%desc%,{_TAIL}"
    for _, _, name in _TOKEN.findall(value):
        if name not in (*PLAIN, *_CREATION, *_COUNTED, *_TIMED):
            raise BadValue(f"--perf-template={value}: unknown token {name!r}")
    return value


PLAIN = (
    "alg", "cfg", "desc", "engine", "flags", "activation", "direction", "attr", "axis", "dir",
    "dt", "group", "sdt", "bia_dt", "stag", "mb", "name", "ddt", "dtag", "prop", "tag",
    "stat_tag", "wtag", "ctx-init", "ctx-exe", "driver", "prb", "impl", "idx",
)  # fmt: skip
"""The tokens that are no measurement."""


def header(template: str) -> str:
    """The names of the columns."""
    prefix = {"-": "min_", "0": "avg_", "+": "max_", "": ""}

    def name(found: re.Match[str]) -> str:
        return prefix[found[1]] + found[2] + found[3]

    return _TOKEN.sub(name, template)


def fill(template: str, plain: Mapping[str, str], measured: Measured) -> str:
    """The line of one case; ``plain`` has the texts of the tokens that are no measurement."""

    def value(found: re.Match[str]) -> str:
        which, unit, name = found.groups()
        if name in PLAIN:
            return plain.get(name, "")
        return f"{_measurement(name, which, measured) / _UNITS[unit]:g}"

    return _TOKEN.sub(value, template)


def _measurement(name: str, which: str, measured: Measured) -> float:
    description, primitive = measured.creation
    bytes_moved = measured.input_bytes + measured.output_bytes
    time = measured.time(which or "-")

    def rate(amount: float) -> float:
        return amount / (time / 1e3) if time else 0.0

    values: Mapping[str, Callable[[], float]] = {
        "ctime": lambda: description + primitive,
        "cptime": lambda: primitive,
        "cpdtime": lambda: description,
        "ops": lambda: float(measured.ops),
        "ibytes": lambda: float(measured.input_bytes),
        "obytes": lambda: float(measured.output_bytes),
        "iobytes": lambda: float(bytes_moved),
        "time": lambda: time,
        "bw": lambda: rate(bytes_moved),
        "flops": lambda: rate(measured.ops),
    }
    return values[name]()
