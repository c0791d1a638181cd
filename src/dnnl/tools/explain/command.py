"""``dnnl explain``: verbose lines and cases of ``dnnl bench`` in prose."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import click

from dnnl.errors import Error
from dnnl.language.errors import BadValue
from dnnl.language.verbose import OtherLine, is_verbose
from dnnl.tools.bench.cases import Interpreter
from dnnl.tools.bench.drivers import DRIVERS
from dnnl.tools.bench.verbose_line import read
from dnnl.tools.explain.inside import Looks, check_picture, draw
from dnnl.tools.explain.others import describe
from dnnl.tools.explain.story import Rows, Times, of_case, of_line
from dnnl.tools.explain.totals import Totals

_STDIN = "-"
_REPRO = "__REPRO:"
_PROGRAMS = ("dnnl", "bench", "benchdnn")
_CASES = 8
"""As many cases of one line are explained; a line can have thousands."""
BAD_INPUT = 2


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("tokens", nargs=-1, type=click.UNPROCESSED, metavar="LINE", required=True)
@click.option(
    "--measure", is_flag=True, help="Run it here, and tell which share of its limit it reaches."
)
@click.option(
    "--roofline",
    type=click.Path(path_type=Path),
    metavar="FILE.svg",
    help="Draw the machine's limits with what was measured as points; measures.",
)
def explain(tokens: tuple[str, ...], measure: bool, roofline: Path | None) -> int:
    """Tell what a verbose line or a case of dnnl bench says, and who would do it here.

    \b
    dnnl explain 'onednn_verbose,v1,primitive,exec,cpu,softmax,...'
    dnnl explain --conv ic16ih7oc32kh3ph1
    ONEDNN_VERBOSE=1 python program.py | dnnl explain -

    It also tells what our kernel does inside: tile, blocks, copies, bytes, arithmetic, and the
    limit by the machine's peaks, which are measured when they are first wanted.

    LINE is a verbose line of oneDNN (from version 2 on) or dnnl, or a case of dnnl bench or
    benchdnn. With - all lines of stdin are read; an operation that comes several times is
    explained once, and a list of where the time went ends the output.
    """
    if roofline is not None:
        check_picture(roofline)
    looks = Looks(measure or roofline is not None)
    status = 0
    if tokens == (_STDIN,):
        status = _whole_log(sys.stdin, looks)
    else:
        line = tokens[0] if len(tokens) == 1 else shlex.join(tokens)
        print("\n".join(list(_explained(line, looks))))
    if roofline is not None:
        roofline.write_text(draw(looks.found), encoding="utf-8")
    return status


def _explained(text: str, looks: Looks) -> Iterator[str]:
    """The explanation of one line; raises BadValue."""
    if not is_verbose(text):
        yield from _cases(text, looks)
        return
    line = read(text)
    if isinstance(line, OtherLine):
        yield describe(line)
        return
    times = Times()
    times.add(line)
    yield from _table(of_line(line, times, looks))


def _table(rows: Rows) -> Iterator[str]:
    for label, text in rows:
        first, *others = text.splitlines() or [""]
        yield f"{label:<10}  {first}".rstrip()
        yield from (f"{'':<10}  {other.strip()}" for other in others)


def _cases(text: str, looks: Looks) -> Iterator[str]:
    tokens = _tokens(text)
    if not _drivers(tokens):
        shown = tokens[0] if tokens else text
        raise BadValue(
            f"{shown!r} begins neither a verbose line (onednn_verbose,...) nor a case "
            f"(--reorder, --conv, ...)"
        )
    cases = Interpreter().cases(tokens)
    for count, case in enumerate(islice(cases, _CASES)):
        if count:
            yield ""
        yield from _table(of_case(case, looks))
    more = sum(1 for _ in cases)
    if more:
        yield f"\n{more} more cases; dnnl bench --mode=L lists them"


def _drivers(tokens: Iterable[str]) -> bool:
    """Whether a driver is among the tokens."""
    return any(token[:2] == "--" and token[2:] in DRIVERS for token in tokens)


def _tokens(text: str) -> list[str]:
    """The tokens of a case, without the program's name or what precedes a repro line."""
    try:
        tokens = shlex.split(text.rpartition(_REPRO)[2])
    except ValueError as error:
        raise BadValue(f"{text.strip()!r}: {error}") from None
    start = next((i for i, token in enumerate(tokens) if token.startswith("-")), 0)
    programs = [token.rpartition("/")[2] for token in tokens[:start]]
    return tokens[start:] if programs and programs[-1] in _PROGRAMS else tokens


def _is_case(text: str) -> bool:
    """Whether a line of a log is meant as a case."""
    tokens = text.split()
    begins = bool(tokens) and (tokens[0][0] == "-" or tokens[0].rpartition("/")[2] in _PROGRAMS)
    return _REPRO in text or (begins and _drivers(tokens))


def _whole_log(lines: Iterable[str], looks: Looks) -> int:
    """Explain each operation of a log once, then where the time went."""
    totals = Totals()
    others: list[str] = []
    bad = strange = 0
    for number, text in enumerate(lines, 1):
        try:
            if is_verbose(text) and totals.add(read(text)):
                continue
            if not is_verbose(text) and not _is_case(text):
                strange += bool(text.strip())
                continue
            others.append("\n".join(_explained(text, looks)))
        except Error as error:
            bad += 1
            print(f"dnnl explain: line {number}: {error}", file=sys.stderr)
    for block in dict.fromkeys(others):
        print(block, end="\n\n" if "\n" in block else "\n")
    for line, times in totals:
        try:
            print("", *_table(of_line(line, times, looks)), sep="\n")
        except Error as error:
            bad += 1
            print(f"dnnl explain: {line.kind} {line.problem}: {error}", file=sys.stderr)
    for text in totals.shares():
        print(text)
    if strange:
        print(f"\n{strange} other lines were left alone")
    return BAD_INPUT if bad else 0
