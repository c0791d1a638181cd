"""oneDNN's C++ names and what they are called here: one table, for errors and the documentation.

Each part has the names of one of oneDNN's classes or namespaces, by the class here on which they
are looked for. Expressions begin with ``dnnl`` or an object: ``pd`` is a PrimitiveDesc.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

_ARGUMENT = "DNNL_ARG_"

_FORWARD = {
    "batch_normalization_forward": "dnnl.BatchNormalizationDesc.forward",
    "binary": "dnnl.BinaryDesc",
    "concat": "dnnl.ConcatDesc",
    "convolution_forward": "dnnl.ConvolutionDesc.forward",
    "deconvolution_forward": "dnnl.DeconvolutionDesc.forward",
    "eltwise_forward": "dnnl.EltwiseDesc.forward",
    "group_normalization_forward": "dnnl.GroupNormalizationDesc.forward",
    "inner_product_forward": "dnnl.InnerProductDesc.forward",
    "layer_normalization_forward": "dnnl.LayerNormalizationDesc.forward",
    "lrn_forward": "dnnl.LrnDesc.forward",
    "matmul": "dnnl.MatmulDesc",
    "pooling_forward": "dnnl.PoolingDesc.forward",
    "prelu_forward": "dnnl.PreluDesc.forward",
    "reduction": "dnnl.ReductionDesc",
    "reorder": "dnnl.reorder(src, dst), or dnnl.ReorderDesc",
    "resampling_forward": "dnnl.ResamplingDesc.forward",
    "shuffle_forward": "dnnl.ShuffleDesc.forward",
    "softmax_forward": "dnnl.SoftmaxDesc.forward",
    "sum": "dnnl.SumDesc",
}
_BACKWARD = {
    **{
        name.replace("forward", "backward"): home.replace("forward", "backward")
        for name, home in _FORWARD.items()
        if home.endswith("forward")
        and not name.startswith(("convolution", "deconvolution", "inner_product"))
    },
    **{
        f"{name}_{gradient}": f"dnnl.{kind}.{gradient}"
        for name, kind in (
            ("convolution", "ConvolutionDesc"),
            ("deconvolution", "DeconvolutionDesc"),
            ("inner_product", "InnerProductDesc"),
        )
        for gradient in ("backward_data", "backward_weights")
    },
}
_RECURRENT = {
    f"{cell}_{direction}": f"dnnl.{kind}.{direction}"
    for cell, kind in (
        ("vanilla_rnn", "VanillaRnnDesc"),
        ("lstm", "LstmDesc"),
        ("gru", "GruDesc"),
        ("lbr_gru", "LbrGruDesc"),
        ("augru", "AugruDesc"),
        ("lbr_augru", "LbrAugruDesc"),
    )
    for direction in ("forward", "backward")
}

THEIRS: dict[str, dict[str, str]] = {
    "dnnl": {
        "engine": "dnnl.Engine",
        "stream": "dnnl.Stream",
        "memory": "dnnl.Memory",
        "memory::desc": "dnnl.MemoryDesc",
        "memory::data_type": "dnnl.DataType",
        "memory::format_tag": "dnnl.FormatTag",
        "memory::dims": "a tuple of integers",
        "primitive": "dnnl.Primitive",
        "primitive_desc": "dnnl.PrimitiveDesc",
        "primitive_attr": "dnnl.PrimitiveAttr",
        "post_ops": "dnnl.PrimitiveAttr().post_ops",
        "algorithm": "dnnl.Alg",
        "prop_kind": "dnnl.PropKind",
        "normalization_flags": "dnnl.NormFlags",
        "rnn_flags": "dnnl.RnnFlags",
        "rnn_direction": "dnnl.Direction",
        "scratchpad_mode": "dnnl.ScratchpadMode",
        "fpmath_mode": "dnnl.FpmathMode",
        "query": "a property of dnnl.PrimitiveDesc or dnnl.MemoryDesc",
        "error": "dnnl.Error",
        "status": "a subclass of dnnl.Error",
        "DNNL_RUNTIME_DIM_VAL": "dnnl.RUNTIME_DIM",
        "DNNL_ARG_SRC": "dnnl.Arg.SRC",
        "DNNL_ARG_ATTR_SCALES": "dnnl.Arg.SCALES",
        "DNNL_ARG_ATTR_ZERO_POINTS": "dnnl.Arg.ZERO_POINTS",
        "DNNL_ARG_ATTR_MULTIPLE_POST_OP": "dnnl.Arg.post_op",
        "DNNL_ARG_ATTR_POST_OP_DW": "dnnl.Arg.POST_OP_DW",
        "DNNL_ARG_MULTIPLE_SRC": "dnnl.Arg.multiple_src",
        "version": "dnnl.__version__",
        "set_verbose": "dnnl.config.set('verbose', ...)",
        "set_max_cpu_isa": "dnnl.config.set('max_cpu_isa', ...)",
        "get_effective_cpu_isa": "dnnl.config.get('max_cpu_isa')",
        "set_jit_dump": "dnnl.config.set('jit_dump', ...)",
        "set_primitive_cache_capacity": "dnnl.config.set('primitive_cache_capacity', ...)",
        "get_primitive_cache_capacity": "dnnl.config.get('primitive_cache_capacity')",
        "set_default_fpmath_mode": "dnnl.PrimitiveAttr(fpmath_mode=...)",
        **_FORWARD,
        **_BACKWARD,
        **_RECURRENT,
    },
    "Engine": {"get_kind": "engine.kind", "get_count": "dnnl.Engine.count"},
    "Stream": {"get_engine": "stream.engine"},
    "MemoryDesc": {
        "get_dims": "md.dims",
        "get_ndims": "md.ndims",
        "get_data_type": "md.data_type",
        "get_padded_dims": "md.padded_dims",
        "get_strides": "md.strides",
        "get_format_kind": "md.format_kind",
        "get_inner_nblks": "len(md.inner_blocks)",
        "get_inner_blks": "md.inner_blocks",
        "get_inner_idxs": "md.inner_blocks",
        "get_size": "md.size",
        "get_submemory_offset": "md.offset0",
        "submemory_desc": "md.submemory",
        "permute_axes": "md.permute_axes",
        "reshape": "md.reshape",
        "is_zero": "md.is_zero",
    },
    "Memory": {
        "get_desc": "memory.desc",
        "get_engine": "memory.engine",
        "get_data_handle": "memory.data",
        "map_data": "memory.read",
        "unmap_data": "memory.write",
        "set_data_handle": "dnnl.Memory(memory.desc, memory.engine, buffer)",
    },
    "PrimitiveDesc": {
        "get_engine": "pd.engine",
        "get_kind": "pd.desc.kind",
        "get_primitive_attr": "pd.attr",
        "impl_info_str": "pd.impl_info",
        "query_md": "pd.arg_desc",
        "query_s64": "pd.scratchpad_desc.size",
        "get_prop_kind": "pd.desc.prop_kind",
        "get_algorithm": "pd.desc.alg_kind",
        "get_strides": "pd.desc.strides",
        "get_dilations": "pd.desc.dilations",
        "get_padding_l": "pd.desc.padding_l",
        "get_padding_r": "pd.desc.padding_r",
        "get_kernel": "pd.desc.kernel",
        "get_alpha": "pd.desc.alpha",
        "get_beta": "pd.desc.beta",
        "get_axis": "pd.desc.axis",
        "get_epsilon": "pd.desc.epsilon",
        "get_flags": "pd.desc.flags",
        "get_group_size": "pd.desc.group_size",
        "get_local_size": "pd.desc.local_size",
        "get_p": "pd.desc.p",
        "mean_desc": "pd.arg_desc(dnnl.Arg.MEAN)",
        "variance_desc": "pd.arg_desc(dnnl.Arg.VARIANCE)",
        "diff_bias_desc": "pd.arg_desc(dnnl.Arg.DIFF_BIAS)",
    },
    "PrimitiveAttr": {
        "get_post_ops": "attr.post_ops",
        "set_post_ops": "attr.post_ops.append_eltwise(...)",
        "set_scales_mask": "attr.set_scales",
        "set_zero_points_mask": "attr.set_zero_points",
        "get_scratchpad_mode": "attr.scratchpad_mode",
        "set_scratchpad_mode": "attr.scratchpad_mode = ...",
        "get_fpmath_mode": "attr.fpmath_mode",
        "set_fpmath_mode": "attr.fpmath_mode = ...",
        "get_accumulation_mode": "attr.accumulation_mode",
        "set_accumulation_mode": "attr.accumulation_mode = ...",
        "get_deterministic": "attr.deterministic",
        "set_deterministic": "attr.deterministic = ...",
        "get_rounding_mode": "attr.rounding_modes",
        "get_dropout": "attr.dropout",
        "set_rnn_data_qparams": "attr.set_rnn_data_qparams",
        "set_rnn_weights_qparams": "attr.set_rnn_weights_qparams",
        "set_rnn_weights_projection_qparams": "attr.set_rnn_weights_projection_qparams",
    },
    "PostOps": {
        "len": "len(attr.post_ops)",
        "kind": "attr.post_ops[i]",
        "get_params_sum": "attr.post_ops[i]",
        "get_params_eltwise": "attr.post_ops[i]",
        "get_params_binary": "attr.post_ops[i]",
        "get_params_prelu": "attr.post_ops[i]",
        "get_params_dw": "attr.post_ops[i]",
        "append_dw": "attr.post_ops.append_depthwise",
    },
    "Primitive": {
        "get_primitive_desc": "primitive.pd",
        "get_kind": "primitive.pd.desc.kind",
    },
}
QUERIES: dict[str, str] = {
    "engine": "pd.engine",
    "primitive_kind": "pd.desc.kind",
    "num_of_inputs_s32": "pd.desc.tensors",
    "num_of_outputs_s32": "pd.desc.outputs",
    "impl_info_str": "pd.impl_info",
    "memory_consumption_s64": "pd.scratchpad_desc.size",
    "scratchpad_engine": "pd.engine",
    "reorder_src_engine": "pd.src_engine",
    "reorder_dst_engine": "pd.dst_engine",
    "exec_arg_md": "pd.arg_desc",
    "src_md": "pd.src_desc",
    "weights_md": "pd.weights_desc",
    "dst_md": "pd.dst_desc",
    "diff_src_md": "pd.diff_src_desc",
    "diff_weights_md": "pd.diff_weights_desc",
    "diff_dst_md": "pd.diff_dst_desc",
    "workspace_md": "pd.workspace_desc",
    "scratchpad_md": "pd.scratchpad_desc",
    "prop_kind": "pd.desc.prop_kind",
    "alg_kind": "pd.desc.alg_kind",
    "strides": "pd.desc.strides",
    "dilations": "pd.desc.dilations",
    "padding_l": "pd.desc.padding_l",
    "padding_r": "pd.desc.padding_r",
    "kernel": "pd.desc.kernel",
    "alpha_f32": "pd.desc.alpha",
    "beta_f32": "pd.desc.beta",
    "epsilon_f32": "pd.desc.epsilon",
    "flags": "pd.desc.flags",
    "axis_s32": "pd.desc.axis",
    "group_size_s64": "pd.desc.group_size",
    "local_size_s64": "pd.desc.local_size",
    "p_f32": "pd.desc.p",
    "ndims_s32": "md.ndims",
    "dims": "md.dims",
    "data_type": "md.data_type",
    "submemory_offset_s64": "md.offset0",
    "padded_dims": "md.padded_dims",
    "format_kind": "md.format_kind",
    "inner_blks": "md.inner_blocks",
}


def hint(owner: str, name: str) -> str:
    """What to use for one of oneDNN's names, as the end of an error; empty for any other."""
    home = _home(THEIRS.get(owner, {}), name)
    if home is None:
        return ""
    return f"; use {home}"


def _home(known: dict[str, str], name: str) -> str | None:
    if name in known:
        inner = f"{name}::"
        nested = [f"{own} is {home}" for own, home in known.items() if own.startswith(inner)]
        return "; ".join([known[name], *nested])
    if "engine" in known and name.startswith(_ARGUMENT):
        return f"dnnl.Arg.{name.removeprefix(_ARGUMENT)}"
    # An operation may be named without its direction, or as a class: Convolution.
    stem = name.replace("_", "").lower().removesuffix("desc")
    for their, home in known.items():
        kind = their.removesuffix("_forward").replace("_", "")
        if kind == stem and home.endswith(("Desc", "Desc.forward")):
            return home.removesuffix(".forward")
    return None


class _Theirs:
    """One of oneDNN's names on a class: an AttributeError that says what to use.

    Unlike a ``__getattr__`` it costs other attributes nothing.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: type) -> NoReturn:
        kind = owner.__name__
        text = f"{kind!r} object has no attribute {self.name!r}{hint(kind, self.name)}"
        raise AttributeError(text, name=self.name, obj=instance)


class Value:
    """Base of what oneDNN's names are looked up on."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        for name in THEIRS.get(cls.__name__, {}):
            if not hasattr(cls, name):
                setattr(cls, name, _Theirs(name))

    def __dir__(self) -> list[str]:
        own = vars(type(self))
        return [name for name in super().__dir__() if not isinstance(own.get(name), _Theirs)]


class Property(Value):
    """A value that properties give, which oneDNN has methods for: calling it says so."""

    __slots__ = ()

    if not TYPE_CHECKING:  # for which it would be a function

        def __call__(self, *_: object, **__: object) -> NoReturn:
            text = f"{type(self).__name__!r} object is not callable; what gave it is a property"
            raise TypeError(f"{text}, written without parentheses")
