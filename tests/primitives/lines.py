"""Cases that a line of the case language names, run between guard pages and judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from dnnl import PrimitiveDesc, config
from dnnl.primitives.registry import OPERATIONS
from dnnl.tools.bench.cases import Interpreter
from tests import test_records as records


def each_line(lines: Mapping[str, Sequence[str]]) -> pytest.MarkDecorator:
    """Parametrize a test by the kinds of operations and each of their lines."""
    pairs = [(kind, line) for kind, some in lines.items() for line in some]
    return pytest.mark.parametrize(("kind", "line"), pairs)


def judged(kind: str, line: str, level: str) -> Iterator[Any]:
    """What was decided for each case of an operation on an instruction set, once its results have
    been found right."""
    driver = OPERATIONS[kind].operation.driver.name
    with config.override("max_cpu_isa", level):
        for case in Interpreter().cases([f"--{driver}", *line.split()]):
            made = records.trial(case, OPERATIONS[kind])
            records.judge(made, records.results_between_guard_pages(made))
            yield conf_of(made.pd)


def conf_of(pd: PrimitiveDesc) -> Any:
    """What was decided."""
    return pd.plan.recipe.conf
