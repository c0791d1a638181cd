"""The language of operations that the library does not have yet, so that their cases can be listed
and their verbose lines be read."""

from __future__ import annotations

from dataclasses import dataclass

from dnnl.language.descriptor import Grammar
from dnnl.language.options import ATTRIBUTES, DT, MB, TAG, Driver, Option
from dnnl.language.problem import Dims
from dnnl.language.values import direction, flag, integer, letters, several, text


@dataclass(frozen=True)
class Planned:
    """An operation: its kind, the driver of its cases, and a short summary."""

    kind: str
    driver: Driver
    summary: str


PLANNED = (
    Planned(
        "rnn",
        Driver(
            "rnn",
            (
                Option("prop", "FWD_I", direction), Option("cfg", "f32", text),
                Option("tag", "any", several(text, (1, 3))), Option("alg", "VANILLA_RNN", text),
                *(Option(name, "false", flag) for name in ("with-peephole", "with-projection")),
                Option("scaling", "common", text), Option("scaling-proj", "common", text),
                Option("direction", "left2right", text), Option("activation", "RELU", text),
                Option("skip-nonlinear", "false", flag), Option("trivial-strides", "true", flag),
                Option("flags", "", letters("O")), Option("l", "0", integer),
                Option("t", "0", integer), MB, *ATTRIBUTES,
            ),
            Grammar(
                ("l", "t", "mb", "sic", "slc", "dhc", "dic"), (), defaults={"l": 1, "t": 1},
                need=("sic",), follows={"slc": "sic", "dhc": "sic", "dic": "dhc"},
            ),
            replayable=False, matched=False,
        ),
        "recurrent network, step by step",
    ),
    Planned(
        "zeropad", Driver("zeropad", (DT, TAG), Dims(), replayable=False), "zeros in the padding"
    ),
)  # fmt: skip
