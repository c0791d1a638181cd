"""Many kernels at once: built by several processes, since building one keeps Python busy.

This file is also the program of such a process: it reads recipes and answers with their images.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from dnnl import config
from dnnl.codegen.compile import jit
from dnnl.codegen.ir.kernel import Recipe
from dnnl.runtime.image import Image

_FEWEST = 16  # kernels for each process: it takes as long to start one as to build some of them
_MOST = 16  # processes, of 100 MB each

Built = tuple[Image, bool]
"""An image, and whether it comes from the disk cache."""


def images(
    recipes: Iterable[Recipe], processes: int, ready: Callable[[Recipe], object] = lambda _: None
) -> dict[Recipe, Built]:
    """The images of recipes, as far as they are on disk or are many enough to be built here: by up
    to so many processes, this one included. The others are built when they are needed.

    ``ready`` is called with each whose image is there, in this thread; what it raises ends the
    building. A process that does not work is no error: what it should have built is left out.
    """
    if jit.watched() or not _has_python():
        return {}
    wanted = dict.fromkeys(recipes)
    found = {recipe: image for recipe in wanted if (image := jit.stored(recipe)) is not None}
    missing = deque(recipe for recipe in wanted if recipe not in found)
    helpers = [_Helper() for _ in range(min(processes, len(missing) // _FEWEST, _MOST) - 1)]
    built: dict[Recipe, Image] = {}
    told: set[Recipe] = set()

    def tell(there: Iterable[Recipe]) -> None:
        for recipe in there:
            if recipe not in told:
                told.add(recipe)
                ready(recipe)

    tell(found)
    if helpers:
        with ThreadPoolExecutor(len(helpers)) as threads:
            for helper in helpers:
                threads.submit(helper.build, missing, built)
            try:
                while (recipe := _next(missing)) is not None:
                    built[recipe] = jit.built(recipe)
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
