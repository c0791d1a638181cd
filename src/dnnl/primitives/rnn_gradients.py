"""The gradients of recurrent networks: their roles, what the forward pass leaves for them, and what
kernels need to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from math import prod
from typing import Any

from dnnl.kernels.rnn.gradient_problem import GradientConf
from dnnl.kernels.rnn.problem import RnnConf, WorkspaceSizes, workspace_shapes
from dnnl.language.case import CaseValues
from dnnl.primitives.operation import FORWARD, Passes, Role
from dnnl.primitives.rnn_cases import row_major
from dnnl.types.arg import Arg
from dnnl.types.kinds import RUNTIME_DIM, Alg, PropKind, RnnFlags
from dnnl.types.memory_desc import MemoryDesc

GRADIENTS: Passes = frozenset({PropKind.backward})
"""All gradients are one operation."""
_ATTENTIVE = (Alg.vanilla_augru, Alg.lbr_augru)


def is_lstm(desc: Any) -> bool:
    """Whether cells have a state of their own."""
    return desc.alg_kind is Alg.vanilla_lstm


def attentive(desc: Any) -> bool:
    """Whether steps have an attention."""
    return desc.alg_kind in _ATTENTIVE


def _peeps(desc: Any) -> bool:
    return not desc.weights_peephole_desc.is_zero


def _projects(desc: Any) -> bool:
    return not desc.weights_projection_desc.is_zero


def _case(field: str, option: str = "") -> Any:
    """Gradients of cases are f32."""
    return row_major(field, "f32", option)


GRADIENT_ROLES = (
    Role(
        Arg.DIFF_SRC_LAYER, "diff_src_layer", "diff_src_layer_desc", writes=GRADIENTS,
        optional=True, like=("",), letters="tnc", case=_case("diff_src_layer_desc"),
    ),
    Role(
        Arg.DIFF_SRC_ITER, "diff_src_iter", "diff_src_iter_desc", writes=GRADIENTS, optional=True,
        like=("",), letters="ldnc", case=_case("diff_src_iter_desc"),
    ),
    Role(
        Arg.DIFF_SRC_ITER_C, "diff_src_iter_c", "diff_src_iter_c_desc", writes=GRADIENTS,
        optional=True, when=is_lstm, like=("",), letters="ldnc",
        case=_case("diff_src_iter_c_desc"),
    ),
    Role(
        Arg.DIFF_AUGRU_ATTENTION, "diff_augru_attention", "diff_attention_desc", writes=GRADIENTS,
        when=attentive, like=("",), letters="tnc", case=_case("diff_attention_desc"),
    ),
    Role(
        Arg.DIFF_WEIGHTS_LAYER, "diff_wei_layer", "diff_weights_layer_desc", writes=GRADIENTS,
        chosen=True, independent=True, letters="ldigo", case=_case("diff_weights_layer_desc"),
    ),
    Role(
        Arg.DIFF_WEIGHTS_ITER, "diff_wei_iter", "diff_weights_iter_desc", writes=GRADIENTS,
        chosen=True, independent=True, letters="ldigo", case=_case("diff_weights_iter_desc"),
    ),
    Role(
        Arg.DIFF_WEIGHTS_PEEPHOLE, "diff_wei_peephole", "diff_weights_peephole_desc",
        writes=GRADIENTS, when=_peeps, like=("",), letters="ldgo",
        case=_case("diff_weights_peephole_desc", "with-peephole"),
    ),
    Role(
        Arg.DIFF_WEIGHTS_PROJECTION, "diff_wei_proj", "diff_weights_projection_desc",
        writes=GRADIENTS, when=_projects, chosen=True, independent=True, letters="ldio",
        case=_case("diff_weights_projection_desc", "with-projection"),
    ),
    Role(
        Arg.DIFF_BIAS, "diff_bias", "diff_bias_desc", writes=GRADIENTS, optional=True, like=("",),
        letters="ldgo", case=_case("diff_bias_desc"),
    ),
    Role(
        Arg.DIFF_DST_LAYER, "diff_dst_layer", "diff_dst_layer_desc", reads=GRADIENTS, like=("",),
        letters="tnc", case=_case("diff_dst_layer_desc"),
    ),
    Role(
        Arg.DIFF_DST_ITER, "diff_dst_iter", "diff_dst_iter_desc", reads=GRADIENTS, optional=True,
        like=("",), letters="ldnc", case=_case("diff_dst_iter_desc"),
    ),
    Role(
        Arg.DIFF_DST_ITER_C, "diff_dst_iter_c", "diff_dst_iter_c_desc", reads=GRADIENTS,
        optional=True, when=is_lstm, like=("",), letters="ldnc",
        case=_case("diff_dst_iter_c_desc"),
    ),
)  # fmt: skip


def gradient_conf(desc: Any, network: RnnConf) -> GradientConf:
    """The gradient of a forward pass."""

    def there(own: MemoryDesc) -> MemoryDesc | None:
        return None if own.is_zero else own

    return GradientConf(
        **{own.name: getattr(network, own.name) for own in fields(network)},
        activation=desc.activation or Alg.eltwise_tanh,
        alpha=desc.alpha,
        overwrites=RnnFlags.diff_weights_overwrite in desc.flags,
        diff_src_layer=there(desc.diff_src_layer_desc),
        diff_src_iter=there(desc.diff_src_iter_desc),
        diff_src_iter_c=there(desc.diff_src_iter_c_desc),
        diff_attention=there(desc.diff_attention_desc),
        diff_weights_layer=desc.diff_weights_layer_desc,
        diff_weights_iter=desc.diff_weights_iter_desc,
        diff_peephole=there(desc.diff_weights_peephole_desc),
        diff_projection=there(desc.diff_weights_projection_desc),
        diff_bias=there(desc.diff_bias_desc),
        diff_dst_layer=desc.diff_dst_layer_desc,
        diff_dst_iter=there(desc.diff_dst_iter_desc),
        diff_dst_iter_c=there(desc.diff_dst_iter_c_desc),
    )


def workspace(desc: Any) -> MemoryDesc:
    """What the forward pass leaves for the gradient."""
    return MemoryDesc((workspace_elements(desc, dict(desc.known_sizes())),), "f32")


def workspace_elements(desc: Any, sizes: Mapping[str, int]) -> int:
    """The elements of a workspace, of sizes by their names."""
    outputs = "DHC" if desc.weights_projection_desc.is_zero else "DIC"
    names = ("L", "D", "T", "N", "DHC", "SIC", outputs)
    wanted = [sizes.get(key, RUNTIME_DIM) for key in names]
    if RUNTIME_DIM in wanted:
        return RUNTIME_DIM
    layers, directions, steps, rows, channels, before, behind = wanted
    own = WorkspaceSizes(
        desc.alg_kind, layers, directions, steps, rows, channels, max(before, behind)
    )
    return sum(map(prod, workspace_shapes(own).values()))


def completed(desc: Any, case: CaseValues) -> Any:
    """Of the gradient that a case is, the forward pass has weights in a layout of its own."""
    if desc.propagation not in FORWARD or case.prop_kind in FORWARD:
        return desc
    names = ("weights_layer_desc", "weights_iter_desc")
    own = {name: getattr(desc, name) for name in names}
    return replace(desc, **{n: MemoryDesc(d.dims, d.data_type, "any") for n, d in own.items()})
