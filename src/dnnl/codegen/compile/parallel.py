"""Many kernels at once: LLVM compiles one in a thread while Python writes the next, and beyond two
processors other processes help, since a process writes and compiles one at a time.

This file is also the program of such a process: it reads recipes and answers with their images.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from dnnl import config
from dnnl.codegen.compile import jit
from dnnl.codegen.ir.kernel import Recipe
from dnnl.runtime.image import Image

_FEWEST = 16  # kernels for each process: it takes as long to start one as to build some of them
_MOST = 16  # processes, of 100 MB each
_AHEAD = 3  # kernels that are written before LLVM is there

Built = tuple[Image, bool]
"""An image, and whether it comes from the disk cache."""


def images(
    recipes: Iterable[Recipe], processes: int, ready: Callable[[Recipe], object] = lambda _: None
) -> dict[Recipe, Built]:
    """The images of recipes, as far as they are on disk or are built here: by up to so many threads
    and processes, where there are several. Otherwise they are built when they are needed.

    ``ready`` is called with each whose image is there, in this thread; what it raises ends the
    building. A process that does not work is no error: what it should have built is left out.
    """
    if jit.watched():
        return {}
    wanted = dict.fromkeys(recipes)
    found = {recipe: image for recipe in wanted if (image := jit.stored(recipe)) is not None}
    missing = deque(recipe for recipe in wanted if recipe not in found)
    count = min(processes, len(missing) // _FEWEST, _MOST) - 2  # without the two threads here
    helpers = [_Helper() for _ in range(count if _has_python() else 0)]
    built: dict[Recipe, Image] = {}
    told: set[Recipe] = set()

    def tell(there: Iterable[Recipe]) -> None:
        for recipe in there:
            if recipe not in told:
                told.add(recipe)
                ready(recipe)

    tell(found)
    if processes > 1 and len(missing) > 1:
        with ThreadPoolExecutor(len(helpers) + 1) as threads:
            for helper in helpers:
                threads.submit(helper.build, missing, built)
            try:
                for recipe, image in _built(missing, threads):
                    built[recipe] = image
                    tell(tuple(built))  # those of the helpers as well
            finally:
                missing.clear()  # also where this is interrupted
                for helper in helpers:
                    helper.stop()
    for recipe, image in built.items():
        jit.store(recipe, image)
    tell(built)
    return {r: (image, True) for r, image in found.items()} | {
        r: (image, False) for r, image in built.items()
    }


def _built(left: deque[Recipe], threads: ThreadPoolExecutor) -> Iterator[tuple[Recipe, Image]]:
    """Recipes and their images, written in this thread and compiled in another one."""
    pending: deque[tuple[Recipe, Future[Image]]] = deque()
    while (recipe := _next(left)) is not None:
        pending.append((recipe, threads.submit(jit.compiled, recipe, jit.written(recipe))))
        if len(pending) > _AHEAD or pending[0][1].done():
            first, image = pending.popleft()
            yield first, image.result()
    for recipe, image in pending:
        yield recipe, image.result()


def _next(left: deque[Recipe]) -> Recipe | None:
    try:
        return left.popleft()
    except IndexError:
        return None


class _Helper:
    """A process that builds kernels."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = False

    def build(self, left: deque[Recipe], built: dict[Recipe, Image]) -> None:
        """Have the process build what is left. Should it end early, the last recipe is left out."""
        with _started() as process:
            self._process = process
            assert process.stdin is not None
            assert process.stdout is not None
            # Nothing is taken before all is imported there.
            self._ready = bool(process.stdout.read(1))
            while self._ready and (recipe := _next(left)) is not None:
                pickle.dump(recipe, process.stdin)
                process.stdin.flush()
                built[recipe] = pickle.load(process.stdout)

    def stop(self) -> None:
        """End a process that is still starting."""
        if self._process is not None and not self._ready:
            self._process.kill()


def _started() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", __name__]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=nowhere, env=environment)


def _has_python() -> bool:
    """Whether ``sys.executable`` is an interpreter, and not a program that contains one."""
    return Path(sys.executable or "").name.startswith(("python", "pypy"))


def _main() -> None:
    config.set("verbose", "none")  # as stdout is for images
    sys.stdout.buffer.write(b"+")
    sys.stdout.buffer.flush()
    with suppress(EOFError):
        while True:
            pickle.dump(jit.built(pickle.load(sys.stdin.buffer)), sys.stdout.buffer)
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    _main()
