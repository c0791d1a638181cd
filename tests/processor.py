"""The processor that the tests run on."""

from __future__ import annotations

from dnnl.codegen import isa
from dnnl.runtime.engine import Engine

_FEATURES = Engine("cpu").features

ISAS = [row.name for row in isa.available(_FEATURES.arch, _FEATURES.flags)]
"""The names of the instruction sets that it has, the best one last."""
