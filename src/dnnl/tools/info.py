"""``dnnl info``: what this installation is, sees and uses."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dnnl import __version__, config
from dnnl.codegen import isa
from dnnl.codegen.compile.disk_cache import serves_unknown_sizes
from dnnl.errors import Error
from dnnl.runtime.engine import engine_kinds, missing
from dnnl.runtime.engines.cpu import pool_name
from dnnl.runtime.threads import available_cpus, get_num_threads
from dnnl.tools.engines import all_engines, spelled

PACKAGES = ("llvmlite", "numpy", "ml_dtypes", "onnx", "onnxruntime", "torch", "dpctl")
Rows = Iterator[tuple[str, str]]


def versions() -> Rows:
    """The library, the interpreter and the packages that it may use."""
    yield "dnnl", __version__
    yield "python", f"{platform.python_version()}, {platform.system()} {platform.machine()}"
    for name in PACKAGES:
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            yield name, "not installed"


def engines() -> Rows:
    """Every engine, and what code the generators write for it."""
    for engine in all_engines():
        features, about = engine.features, engine.backend.description
        if features.universal:
            yield spelled(engine), "every instruction set; executes nothing"
            continue
        row = isa.select(features.arch, features.cpu, features.flags)
        native = [dot.a + dot.b for dot in row.dots if dot.instruction and dot.a != "s16"]
        dot = f", native {' '.join(native)}" if native else ""
        text = f"{row.name}: {row.registers} registers of {row.vector_bits} bits{dot}"
        yield spelled(engine), f"{about or f'{features.arch} {features.cpu}'}, {text}"
    for kind in engine_kinds():
        if hint := missing(kind):
            yield kind, f"none: {hint}"


def threads() -> Rows:
    """How executions are spread."""
    yield "threads", f"{get_num_threads()} of {available_cpus()} cpus"
    yield "pool", pool_name()


def cache() -> Rows:
    """The compiled kernels on disk."""
    folder: Path | None = config.get("cache_dir")
    if folder is None:
        yield "folder", "none: this user has no home; DNNL_CACHE_DIR names one"
        return
    yield "folder", str(folder)
    try:
        files = [entry for entry in folder.iterdir() if entry.is_file()]
        sizes = [entry.stat().st_size for entry in files]
        many = sum(map(serves_unknown_sizes, files))
    except OSError as error:
        yield "kernels", f"none ({error.strerror})"
    else:
        yield "kernels", f"{len(sizes)}, {sum(sizes) / 2**20:.1f} MiB"
        yield "of any size", f"{many}, each for all descriptions that differ in open sizes"


def knobs() -> Rows:
    """Every environment variable of the library with its present value."""
    for knob in config.KNOBS:
        try:
            value = config.get(knob.name)
        except Error as error:
            value = f"refused: {error}"
        yield ", ".join(knob.variables), "" if value is None else str(value)


def sections() -> Iterator[tuple[str, Rows]]:
    """Each section with its rows; a section that fails says why in place of them."""
    for title, rows in (
        ("versions", versions()),
        ("engines", engines()),
        ("threads", threads()),
        ("kernel cache", cache()),
        ("environment", knobs()),
    ):
        yield title, _or_reason(rows)


def _or_reason(rows: Rows) -> Rows:
    try:
        yield from rows
    except Error as error:
        yield "error", str(error)


def show(console: Console) -> None:
    """Print every section as a small table."""
    for title, rows in sections():
        table = Table.grid(padding=(0, 2))
        table.add_column(style="cyan", no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in rows:
            table.add_row(name, Text(value))
        console.print(f"[bold]{title}[/bold]")
        console.print(table)


@click.command()
def info() -> None:
    """Show version, engines, instruction set, threads, kernel cache and settings."""
    show(Console(highlight=False))
