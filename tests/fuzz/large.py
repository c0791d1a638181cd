"""Problems of the sizes that networks have, on the caches of the machine.

Sums are long there, kernels choose other ways, and work is shared out for what it is.
"""

from __future__ import annotations

from functools import partial

from tests.fuzz.kind import Kind
from tests.fuzz.primitives import lines, run

KIND = Kind(
    "large", "primitives of the sizes of networks", partial(lines, large=True), run, __name__,
    weight=2, timeout=300, lives=50,
)  # fmt: skip
