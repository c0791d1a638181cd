"""Models of ONNX Runtime's own operators, and what it makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from onnx import helper

from dnnl.framework.model import Model
from dnnl.operators.microsoft import MICROSOFT
from tests.framework.models import Array, make_model, model_of, node, plans_of, run_peer

F16, BF16 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)


def contributed(op: str, inputs: Sequence[str], *outputs: str, **attrs: Any) -> Any:
    """A NodeProto of ONNX Runtime's domain."""
    return node(op, inputs, *outputs, domain=MICROSOFT, **attrs)


def contributed_model(
    nodes: Sequence[Any],
    inputs: Mapping[str, Sequence[int | str]],
    outputs: Sequence[str],
    constants: Mapping[str, Any] | None = None,
    kinds: Mapping[str, npt.DTypeLike] | None = None,
) -> Any:
    """A ModelProto that imports ONNX Runtime's domain."""
    proto = make_model(nodes, inputs, outputs, constants, opset=21, kinds=kinds)
    proto.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    return proto


def results(model: Model, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """All results by their names."""
    found = model(feeds)
    return found if isinstance(found, dict) else {model.outputs[0]: found}


def check_calls(
    proto: Any, calls: Iterable[Mapping[str, Array]], tolerance: float, plans: int | None = 1
) -> Model:
    """Compare every result of each call with ONNX Runtime's: floats may differ by ``tolerance``,
    relative or absolute; integers by 1. The calls are served by at most as many open ``plans``."""
    model = model_of(proto)
    for place, feeds in enumerate(calls):
        wanted, found = run_peer(proto, feeds), results(model, feeds)
        for name, right in wanted.items():
            own = found[name]
            assert (own.dtype, own.shape) == (right.dtype, right.shape), name
            step = tolerance if right.dtype.kind not in "biu" else 1
            np.testing.assert_allclose(
                own.astype(np.float64),
                right.astype(np.float64),
                rtol=tolerance,
                atol=step,
                err_msg=f"{name} of call {place}",
            )
    if plans is not None:
        assert sum(session.is_open for session in plans_of(model).sessions) <= plans
        assert len(plans_of(model).sessions) <= plans + 1
    return model
