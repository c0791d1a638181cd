"""The process that compiles a plan for `background`: ``python -m`` this module REQUEST RESULT."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import replace

import numpy as np

from dnnl.errors import Error
from dnnl.framework.compiler import compiled
from dnnl.framework.saved_file import SavedFile, Writer
from dnnl.framework.saved_graph import GraphReader
from dnnl.framework.saved_plan import type_of
from dnnl.framework.saving import written_plans
from dnnl.passes.specialize import specialize
from dnnl.runtime.engine import first_cpu
from dnnl.types.dtype import DataType

_LOWEST = 19


def compile_request(request: str, result: str) -> None:
    """Compile the plan that the file ``request`` describes, and write it to the file ``result``."""
    asked = SavedFile(request)
    index = asked.index
    source = SavedFile(index["graph"])
    graph = GraphReader(source.blob).read(source.index["graph"])
    contents = {
        name: asked.blob(place).view(np.dtype(kind)).reshape(shape)
        for name, kind, shape, place in index["contents"]
    }
    graph = replace(
        graph,
        inputs={name: type_of(kind) for name, kind in index["inputs"].items()},
        constants={**graph.constants, **contents},
        types={},
        defaults={},
    )
    kind = DataType[index["precision"]]
    plan = compiled(specialize(graph), first_cpu(), index["layout"], kind)
    writer = Writer(index["held"])
    writer.write(result, written_plans(writer, [plan]))


def _yield_to_others() -> None:
    """Run at the lowest priority of the system's scheduler."""
    with suppress(AttributeError, OSError):
        os.nice(_LOWEST)
    with suppress(AttributeError, OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


if __name__ == "__main__":
    _yield_to_others()
    try:
        compile_request(*sys.argv[1:])
    except Error as error:
        sys.exit(str(error))
