"""What the HTML pages of ``dnnl bench --report`` and ``dnnl run --html`` share."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from pathlib import Path

from dnnl.language.errors import BadValue
from dnnl.primitives.primitive_desc import select_isa
from dnnl.runtime.engine import Engine

_PACKAGES = ("matplotlib", "jinja2")
_TOOLS = Path(__file__).parent


def check_packages(option: str) -> None:
    """Raise BadValue if a package that a page needs is not installed."""
    for name in _PACKAGES:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            raise BadValue(f"{option} needs {name}: pip install 'dnnl[report]'") from None


def rendered(template: str, **values: object) -> str:
    """A template of this folder rendered to HTML; values are escaped."""
    jinja = importlib.import_module("jinja2")
    environment = jinja.Environment(
        loader=jinja.FileSystemLoader(_TOOLS),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja.StrictUndefined,
    )
    page: str = environment.get_template(template).render(**values)
    return page


def machine(engines: Iterable[Engine], num_threads: int) -> str:
    """The processors or devices, their instruction sets, and the number of threads, as text."""
    texts = [
        f"{engine.backend.description or engine.features.cpu}, {select_isa(engine).name}"
        for engine in engines
    ]
    return "; ".join([*texts, f"{num_threads} thread{'s' if num_threads > 1 else ''}"])
