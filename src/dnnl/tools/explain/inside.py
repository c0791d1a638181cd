"""What an implementation of ours has decided for a case, what limits it, what it reaches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from dnnl.codegen.product.multiply import multiply
from dnnl.errors import InvalidArguments
from dnnl.primitives.info import Info
from dnnl.primitives.limits import operations
from dnnl.primitives.primitive_desc import PrimitiveDesc, select_isa
from dnnl.runtime.engine import first_cpu
from dnnl.tools.bench.cases import Case
from dnnl.tools.bench.execute import Executor
from dnnl.tools.plots import Point, Roof, alone, limits_plot
from dnnl.types.dtype import DataType

_SUFFIX = ".svg"
_MS = 500  # of one case
_PEAKS = (
    (DataType.f32, DataType.f32), (DataType.bf16, DataType.bf16), (DataType.u8, DataType.s8),
)  # fmt: skip


@dataclass
class Looks:
    """How to look inside, and the cases that were looked at; with ``measure`` each is run."""

    measure: bool = False
    found: list[tuple[str, Info]] = field(default_factory=list)
    _executor: Executor = field(default_factory=Executor)

    def rows(self, case: Case, pd: PrimitiveDesc) -> Iterator[tuple[str, str]]:
        """What is inside of a description that was made for a case."""
        if pd.desc.has_runtime_values:
            yield "inside", "sizes that only an execution knows have no bytes and no times"
            return
        info = pd.info()
        if self.measure:
            info = self._measured(case, info)
        self.found.append((case.repro, info))
        yield from info.rows()
        if self.measure and info.seconds is None:
            yield "measured", "nothing: dnnl bench --mode=P does not run this case"

    def _measured(self, case: Case, info: Info) -> Info:
        settings = replace(case.settings, mode="P", modifiers="M", max_ms=_MS, peer="")
        least = self._executor.run(replace(case, settings=settings)).measured.time("-")
        return info.with_time(least / 1e3) if least else info


def check_picture(path: Path) -> None:
    """Raise InvalidArguments unless a picture can be written there."""
    if path.suffix != _SUFFIX:
        raise InvalidArguments("--roofline", str(path), f"must be a file *{_SUFFIX}")
    if not path.parent.is_dir():
        raise InvalidArguments("--roofline", str(path), f"there is no folder {path.parent}")


def draw(found: list[tuple[str, Info]]) -> str:
    """The roofline of this machine with a point for each case that has a time, as SVG.

    Raises InvalidArguments where none has known arithmetic.
    """
    points, roofs = [], {roof.label: roof for roof in _peaks(found)}
    for name, info in found:
        if info.limits is None or not info.seconds or not info.operations:
            continue
        rate = info.operations / info.seconds / 1e9
        points.append(Point(info.intensity, rate, info.implementation, f"{name}: {rate:.4g}"))
        slope, reach = info.limits.bandwidth / 1e9, info.limits.reach / 2**20
        label = f"reads of {reach:.3g} MiB, {slope:.3g} GB/s"
        roofs[label] = Roof(label, max(roof.level for roof in roofs.values()), slope, "--")
    if not points:
        rule = "a roofline has sums of products only, and nothing of the kind was measured"
        raise InvalidArguments("--roofline", None, rule)
    drawn = limits_plot(points, list(roofs.values()), "operations for each byte", "Gop/s")
    return alone(drawn, points)


def _peaks(found: list[tuple[str, Info]]) -> Iterator[Roof]:
    """The products of f32, bf16 and bytes, on as many threads as the first case has."""
    engine = first_cpu()
    isa = select_isa(engine)
    threads = next((info.limits.num_threads for _, info in found if info.limits), 1)
    for src, weights in _PEAKS:
        how = multiply(isa, src, weights)
        if how is None:
            continue
        rate = operations(engine, isa, how, threads) / 1e9
        own = src if src is weights else f"{src} x {weights}"
        by = "" if how.dot.group > 1 or src is DataType.f32 else f" as {how.a}"
        yield Roof(f"{own}{by}, {rate:.3g} Gop/s", rate, dashes="-" if not by else "-.")
