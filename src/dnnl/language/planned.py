"""The language of operations that the library does not have yet, so that their cases can be listed
and their verbose lines be read."""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.language.options import DT, TAG, Driver
from dnnl.language.problem import Dims


@dataclass(frozen=True)
class Planned:
    """An operation: its kind, the driver of its cases, and a short summary."""

    kind: str
    driver: Driver
    summary: str


PLANNED = (
    Planned(
        "zeropad", Driver("zeropad", (DT, TAG), Dims(), replayable=False), "zeros in the padding"
    ),
)  # fmt: skip
