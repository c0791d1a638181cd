"""What is left of a case that the library refuses when attributes or types are taken away.

Cases are drawn without knowing what an operation takes, so that most would be refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import reject

from dnnl.errors import Error
from dnnl.language.errors import BadValue
from dnnl.tools.bench.cases import Case, Interpreter
from dnnl.tools.bench.creation import create, skipped
from dnnl.tools.bench.drivers import description

_SELDOM = ("--attr-zero-points", "--attr-dropout", "--attr-scales", "--attr-fpmath")
_TYPES = ("--sdt=", "--ddt=", "--dt=", "--ss_dt=")
_LAYOUTS = ("--strides", "--inplace", "--runtime-dim-mask")
_LEFT_OUT = (
    (), _SELDOM, ("--attr",), _TYPES, (*_SELDOM, *_TYPES), ("--attr", *_TYPES),
    ("--attr", *_TYPES, *_LAYOUTS),
)  # fmt: skip


def taken(case: Case) -> Case:
    """The case that has most of this one and is not refused; gives up where there is none."""
    return next((fewer for fewer in _with_less(case) if _is_taken(fewer)), None) or reject()


def _with_less(case: Case) -> Iterator[Case]:
    tokens = case.repro.split(" ")
    for names in _LEFT_OUT:
        kept = [token for token in tokens if not token.startswith(names or ("-- ",))]
        yield from Interpreter().cases(kept)


def _is_taken(case: Case) -> bool:
    kind = description(case.driver)
    if kind is None:
        return False
    try:
        return skipped(case, kind.operation) is None and bool(create(case, kind))
    except (BadValue, Error):
        return False
