"""From a command line to cases: the state that options change and problems are run with."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dnnl.language.case import CaseValues
from dnnl.language.errors import BadValue, UnknownOption
from dnnl.language.options import Driver, Option, Problem
from dnnl.language.values import Lacked, Lacking
from dnnl.tools.bench.drivers import DRIVERS
from dnnl.tools.bench.lexer import BatchFiles
from dnnl.tools.bench.settings import DEFAULTS, GLOBALS, Settings
from dnnl.tools.bench.template import DEFAULT_TEMPLATE, find_template


class Item(NamedTuple):
    """One value of an option, and what a repro line says of it: nothing, or text and a space."""

    value: Any
    shown: str


@dataclass(frozen=True)
class Case(CaseValues):
    """One case: what runs, and the text that runs it again."""

    settings: Settings
    line: str
    template: str
    impl: str = ""
    skip_impl: str = ""

    @property
    def repro(self) -> str:
        """The arguments that run this case alone."""
        return f"{self.settings.repro()}--{self.driver.name} {self.line}"


class Interpreter:
    """Reads tokens from left to right and yields the cases that they run."""

    def __init__(self) -> None:
        self.settings = Settings()
        self.template = DEFAULT_TEMPLATE
        self._driver: Driver | None = None
        self._asked = False
        self._batches = BatchFiles()
        self._reset()

    def cases(self, tokens: Sequence[str]) -> Iterator[Case]:
        """The cases of ``tokens``; raises BadValue where they cannot be read."""
        yield from self._read(tokens)
        if self._driver is None:
            raise BadValue("the line names no driver, as in --softmax --axis=1 8x1000")
        if not self._asked:
            rule = "ends the line without a problem as 2x3x4 or ic16ih7..."
            raise BadValue(f"{tokens[-1]!r} {rule}")

    def _read(self, tokens: Sequence[str]) -> Iterator[Case]:
        for token in tokens:
            if self._driver is None:
                self._before_driver(token)
            elif token.startswith("--batch="):
                name = token.removeprefix("--batch=")
                self._asked = True
                with self._batches.opened(name, self._driver.name) as found:
                    yield from self._read(found)
            elif token.startswith("-"):
                self._change(token, self._driver)
            else:
                self._asked = True
                yield from self._run(self._driver, token)

    def _before_driver(self, token: str) -> None:
        if token.removeprefix("--") in DRIVERS and token.startswith("--"):
            self._driver = DRIVERS[token.removeprefix("--")]
            self._reset()
        elif not self._global(token):
            known = ", ".join(f"--{name}" for name in DRIVERS)
            raise UnknownOption(f"unknown option {token!r}; the drivers are {known}")

    def _global(self, token: str) -> bool:
        """Change the settings, if ``token`` is a global option."""
        if re.fullmatch("-v[0-9]+", token):
            token = f"--verbose={token[2:]}"
        name, equals, value = token.removeprefix("--").partition("=")
        if not equals or name not in GLOBALS:
            return False
        try:
            self.settings = GLOBALS[name](self.settings, value or DEFAULTS.get(name, ""))
        except ValueError as error:
            raise BadValue(f"{token}: {error}") from None
        return True

    def _reset(self) -> None:
        """Give all options of the driver their defaults."""
        self._match: re.Pattern[str] | None = None
        self._filters = {"impl": "", "skip-impl": ""}
        self._lists: dict[str, list[Item]] = {}
        for option in self._driver.options if self._driver else ():
            self._lists[option.name] = self._items(option, "")

    def _change(self, token: str, driver: Driver) -> None:
        name, equals, value = token.removeprefix("--").partition("=")
        option = driver.find(name) or driver.find(name.replace("_", "-"))
        if token == "--reset":
            self._reset()
        elif option is not None and equals:
            self._lists[option.name] = self._items(option, value)
        elif name == "perf-template" and equals:
            self.template = find_template(value, driver)
        elif name == "match" and equals:
            self._match = _pattern(value) if value else None
        elif name in self._filters and equals:
            self._filters = {"impl": "", "skip-impl": "", name: value}
        elif name in DRIVERS and not equals:
            rule = f"is a second driver behind --{driver.name}; run it by itself"
            raise UnknownOption(f"{token!r} {rule}")
        elif not self._global(token):
            known = ", ".join(f"--{row.name}" for row in driver.options)
            raise UnknownOption(f"unknown option {token!r}; {driver.name} has {known}")

    def _items(self, option: Option, text: str) -> list[Item]:
        plain = str(option.parse(option.default))
        empty = option.default if option.name.startswith("attr-") else ""
        items = []
        for part in (text or option.default).split(","):
            try:
                value = option.parse(part or empty)
            except Lacking as error:
                value = Lacked.of(part, str(error))
            except ValueError as error:
                raise BadValue(f"--{option.name}={part}: {error}") from None
            shown = str(value)
            hidden = shown == plain and not option.always and not self.settings.canonical
            items.append(Item(value, "" if hidden else f"--{option.name}={shown} "))
        return items

    def _run(self, driver: Driver, token: str) -> Iterator[Case]:
        """Every combination of the options with one problem."""
        problem = driver.problem.parse(token)
        names = [option.name for option in driver.options]
        batch = names.index("mb") if "mb" in names else -1
        order = [place for place in driver.order if place != batch]
        filters = "".join(f"--{name}={value} " for name, value in self._filters.items() if value)
        match = self._match if driver.matched else None
        problems: dict[int, tuple[Problem, str]] = {0: (problem, filters + problem.text)}
        for items in itertools.product(*(self._lists[name] for name in names)):
            size = items[batch].value if batch >= 0 else 0
            if size not in problems:
                changed = problem.with_batch(size)
                problems[size] = changed, filters + changed.text
            own, text = problems[size]
            line = "".join([items[place].shown for place in order]) + text
            if match is not None and not match.search(line):
                return
            values = {name: item.value for name, item in zip(names, items, strict=True)}
            case = Case(
                driver,
                values,
                own,
                self.settings,
                line,
                self.template,
                self.settings.impl or self._filters["impl"],
                self.settings.skip_impl or self._filters["skip-impl"],
            )
            for _ in range(self.settings.repeats):
                yield case


def _pattern(text: str) -> re.Pattern[str]:
    """The POSIX basic regular expression ``text``; raises BadValue where it is none."""
    try:
        return re.compile(_basic(text))
    except re.error as error:
        rule = "this is no basic regular expression"
        raise BadValue(f"--match={text}: {rule}: {error}") from None


_BASIC_TOKEN = re.compile(r"\\(.)|(\[\^?\]?[^\]]*\])|([(){}|+?])", re.DOTALL)


def _basic(pattern: str) -> str:
    """A POSIX basic regular expression in Python's notation.

    There a bare ``( ) { } | + ?`` is itself and has its meaning behind a backslash.
    """

    def swap(found: re.Match[str]) -> str:
        escaped, bracket, special = found.groups()
        if special:
            return "\\" + special
        if escaped:
            return escaped if escaped in "(){}|+?" else f"\\{escaped}"
        return bracket.replace("[[", "[\\[")

    translated = _BASIC_TOKEN.sub(swap, pattern)
    return "\\*" + translated[1:] if translated.startswith("*") else translated
