"""Batch files: their tokens, and where they are looked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from dnnl.tools.bench.errors import BadValue

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
    pending = False
    for word in _words(text):
        lone = word == CONTINUATION
        body = word.removesuffix(CONTINUATION)
        if pending or (lone and glued):
            glued[-1] += body
        else:
            glued.append(body)
        pending = word.endswith(CONTINUATION)
    return [token for token in glued if token]


def _words(text: str) -> Iterator[str]:
    for line in text.splitlines():
        for word in line.split():
            if word.startswith(COMMENT):
                break
            yield word


class BatchFiles:
    """Finds batch files, beside those found before and among the library's own."""

    def __init__(self) -> None:
        self._folders: list[Path] = []

    def read(self, name: str, driver: str) -> list[str]:
        """The tokens of the file ``name``; raises BadValue if there is none.

        It is looked for as given, then below the folder of each name asked for so far, oldest
        first, then among the case files of the driver.
        """
        asked = Path(name)
        if asked.parent not in self._folders:
            self._folders.append(asked.parent)
        for path in self._places(asked, driver):
            if path.is_file():
                return tokens(path.read_text(encoding="utf-8"))
        raise BadValue(f"cannot open batch file {name!r}")

    def _places(self, asked: Path, driver: str) -> Iterable[Path]:
        yield asked
        for folder in self._folders:
            yield folder / asked
        yield INPUTS / driver / asked
