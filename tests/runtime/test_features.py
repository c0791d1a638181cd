"""What the system says of the processor, without LLVM."""

from __future__ import annotations

import pytest

from dnnl.codegen.isa import ROWS
from dnnl.runtime.engine import first_cpu
from dnnl.runtime.engines.cpu_features import features_by_system
from dnnl.runtime.engines.cpu_permission import permitted


def test_linux_says_of_features_what_llvm_says() -> None:
    found = features_by_system()
    if found is None:
        pytest.skip("the system does not tell")
    asked = {feature for row in ROWS if row.arch == "x86_64" for feature in row.features}
    assert asked & permitted(found) == asked & first_cpu().backend.features().flags
