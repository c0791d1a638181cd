"""Batch files: their tokens, and where they are looked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dnnl.language.errors import BadValue

INPUTS = Path(__file__).parent / "inputs"
"""oneDNN's own case files, one folder for each driver."""

COMMENT, CONTINUATION = "#", "\\"


def tokens(text: str) -> list[str]:
    """The tokens of a batch file.

    They are separated by white space, and the ends of lines mean nothing else. A token that begins
    with ``#`` drops the rest of its line. A token that ends with a backslash, or is followed by a
    lone one, is glued to the next.
    """
    glued: list[str] = []
    continued = False
    for raw in _raw_tokens(text):
        lone = raw == CONTINUATION
        body = raw.removesuffix(CONTINUATION)
        if continued or (lone and glued):
            glued[-1] += body
        else:
            glued.append(body)
        continued = raw.endswith(CONTINUATION)
    return [token for token in glued if token]


def _raw_tokens(text: str) -> Iterator[str]:
    for line in text.splitlines():
        for token in line.split():
            if token.startswith(COMMENT):
                break
            yield token


class BatchFiles:
    """Finds batch files, next to those found before and among the library's own."""

    def __init__(self) -> None:
        self._folders: list[Path] = []
        self._open: list[Path] = []

    @contextmanager
    def opened(self, name: str, driver: str) -> Iterator[list[str]]:
        """The tokens of the file ``name``, which may name others while it is open.

        It is looked for as given, then below the folder of each name asked for so far, oldest
        first, then among the case files of the driver. Raises BadValue if there is no such file,
        no text in it, or if it names itself, even indirectly.
        """
        path = self._find(name, driver).resolve()
        if path in self._open:
            raise BadValue(f"batch file {name!r} is read by itself")
        try:
            found = tokens(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise BadValue(f"cannot read batch file {name!r}: {error}") from None
        self._open.append(path)
        try:
            yield found
        finally:
            self._open.pop()

    def _find(self, name: str, driver: str) -> Path:
        asked = Path(name)
        if asked.parent not in self._folders:
            self._folders.append(asked.parent)
        for path in self._places(asked, driver):
            if path.is_file():
                return path
        raise BadValue(f"cannot open batch file {name!r}")

    def _places(self, asked: Path, driver: str) -> Iterable[Path]:
        yield asked
        for folder in self._folders:
            yield folder / asked
        yield INPUTS / driver / asked
