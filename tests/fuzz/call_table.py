"""The public functions, each with arguments that are right, and values that are wrong somewhere."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import dnnl
from dnnl import ops
from dnnl.language.case import CaseValues
from dnnl.primitives.desc import Desc
from dnnl.primitives.registry import OPERATIONS
from dnnl.tools.bench.cases import Interpreter
from dnnl.tools.bench.creation import describe

Arguments = dict[str, str]
GIVEN: dict[str, Arguments] = {
    "MemoryDesc": {
        "dims": "(2, 3)", "data_type": "'f32'", "layout": "'ab'", "inner_blocks": "()",
        "padded_dims": "None", "offset0": "0", "compensation": "None",
    },
    "MemoryDesc.csr": {
        "dims": "(2, 3)", "data_type": "'f32'", "nnz": "4", "index_type": "'s32'",
        "pointer_type": "'s32'",
    },
    "MemoryDesc.coo": {
        "dims": "(2, 3)", "data_type": "'f32'", "nnz": "4", "index_type": "'s32'",
    },
    "MemoryDesc.packed": {
        "dims": "(2, 3)", "data_type": "'f32'", "nnz": "4", "columns": "8", "group": "1",
    },
    "MemoryDesc.winograd": {
        "dims": "(4, 2, 3, 3)", "data_type": "'f32'", "tile": "4", "columns": "16",
        "rotated": "False", "exchanged": "False",
    },
    "MemoryDesc.grouped": {
        "dims": "(2, 3)", "data_type": "'f32'", "variable_dim_idx": "0", "group_count": "2",
        "offset_type": "'s32'",
    },
    "MemoryDesc.encoded": {
        "dims": "(2, 3)", "data_type": "'f32'", "encoding": "sparse.desc.encoding",
        "index_type": "'s32'",
    },
    "md.offset": {"index": "(1, 2, 3, 4)"},
    "md.reshape": {"dims": "(2, 6, 10)"},
    "md.permute_axes": {"perm": "(3, 1, 0, 2)"},
    "md.submemory": {"dims": "(1, 2, 3, 4)", "offsets": "(1, 0, 0, 0)"},
    "md.with_data_type": {"data_type": "'s8'"},
    "md.with_tag": {"tag": "'nhwc'"},
    "md.with_compensation": {"compensation": "None"},
    "md.matches_tag": {"tag": "'nchw'"},
    "md.nelems": {"padded": "True"},
    "md.is_dense": {"padded": "True"},
    "md.compensation_desc": {"kind": "'s8s8'"},
    "md.__eq__": {"": "md"},
    "RuntimeDim": {"min": "2", "max": "64", "multiple": "4"},
    "FormatTag": {"name": "'nChw16c'"},
    "FormatTag.of": {"order": "(0, 1)", "inner_blocks": "((1, 16),)"},
    "Interpolation": {
        "function": "'cubic'", "coordinates": "'asymmetric'", "rounding": "'floor'",
        "scale": "None", "cubic": "-0.5",
    },
    "Taps": {"places": "((0, 0, 1), (0, 1, 1))", "weights": "((1, 0.5, 1), (0, 0.5, 0))"},
    "CellFunctions": {"functions": "()", "clip": "3.0", "coupled": "False"},
    "CellFunctions.of": {"*": "(abs,)", "clip": "3.0", "coupled": "False"},
    "Compensation": {"s8s8": "1", "zero_points": "0", "scale_adjust": "1.0"},
    "DataType": {"value": "'f32'"},
    "Alg": {"value": "'eltwise_relu'"},
    "PropKind": {"value": "'forward_training'"},
    "NormFlags": {"value": "'use_scale|use_shift'"},
    "RnnFlags": {"value": "'diff_weights_overwrite'"},
    "ScratchpadMode": {"value": "'user'"},
    "FpmathMode": {"value": "'any'"},
    "Direction": {"value": "'unidirectional_left2right'"},
    "Arg": {"value": "1"},
    "Arg.post_op": {"": "0"},
    "Arg.multiple_src": {"": "0"},
    "Engine": {"kind": "'cpu'", "index": "0", "features": "None"},
    "Engine.count": {"kind": "'cpu'"},
    "Stream": {"engine": "engine", "num_threads": "2", "in_order": "True"},
    "stream.wait": {},
    "set_num_threads": {"num_threads": "2"},
    "config.set": {"name": "'max_cpu_isa'", "value": "'default'"},
    "config.get": {"name": "'num_threads'"},
    "Memory": {"desc": "md", "engine": "engine", "buffer": "bytes_of_md"},
    "Memory.from_numpy": {"array": "array", "tag": "'nhwc'", "engine": "engine"},
    "Memory.from_sparse": {"matrix": "matrix", "engine": "engine"},
    "SpecialKernels": {"when": "'often'", "seconds": "2.5", "most": "3"},
    "ShapedBuffer": {"memory": "mem", "permutation": "(0, 3, 1, 2)"},
    "ShapedBuffer.from_numpy": {
        "array": "array", "permutation": "(0, 3, 1, 2)", "engine": "engine", "layout": "'nhwc'",
    },
    "ShapedBuffer.empty": {
        "shape": "(2, 3, 4, 5)", "data_type": "'f32'", "permutation": "(0, 3, 1, 2)",
        "engine": "engine", "layout": "'nhwc'",
    },
    "buffer.axes_for": {"permutation": "(3, 2, 0, 1)"},
    "buffer.view": {"permutation": "(3, 2, 0, 1)"},
    "buffer.memory_for": {"desc": "md", "permutation": "(0, 1, 2, 3)"},
    "buffer.transpose": {"": "(0, 3, 1, 2)", "move": "True"},
    "buffer.reshape": {"": "(6, -1)", "data_type": "'f32'"},
    "buffer.flatten": {"axis": "1"},
    "buffer.reorder_to": {
        "layout": "'nhwc'", "data_type": "'f16'", "permutation": "(0, 1, 2, 3)", "engine": "engine",
    },
    "buffer.copy_from": {"source": "array"},
    "mem.reorder_to": {"target": "'nhwc'", "data_type": "'f16'"},
    "reorder": {
        "src": "mem", "dst": "result", "stream": "stream", "attr": "None", "args": "{}",
    },
    "mem.numpy": {},
    "mem.write": {"data": "bytes_of_md"},
    "mem.write_from": {"source": "mem"},
    "mem.fill": {"array": "array"},
    "mem.part": {"desc": "md", "offset": "0"},
    "mem.compensation": {"kind": "'s8s8'"},
    "mem.__dlpack__": {"stream": "None"},
    "mem.__array__": {"": "'f4'"},
    "PrimitiveAttr": {
        "scratchpad_mode": "'user'", "fpmath_mode": "'strict'", "deterministic": "False",
        "fpmath_apply_to_int": "False", "accumulation_mode": "'strict'",
    },
    "attr.set_scales": {
        "arg": "Arg.SRC", "mask": "0", "groups": "()", "data_type": "'f32'",
        "quantization_mode": "'static_sazp'",
    },
    "attr.set_precomputed_reductions": {
        "arg": "Arg.SRC", "mask": "3", "groups": "(1, 2)", "data_type": "'s32'"
    },
    "attr.set_zero_points": {"arg": "Arg.DST", "mask": "0", "groups": "()", "data_type": "'s32'"},
    "attr.set_dropout": {
        "mask_desc": "None", "seed_data_type": "'s64'", "use_offset": "False",
        "use_host_scalars": "False",
    },
    "attr.set_rounding_mode": {"arg": "'DST'", "mode": "'stochastic'"},
    "attr.set_rnn_data_qparams": {"scale": "127.0", "shift": "128"},
    "attr.set_rnn_weights_qparams": {"mask": "24", "scales": "[1.0, 2.5]"},
    "attr.set_rnn_weights_projection_qparams": {"mask": "0", "scales": "3.0"},
    "attr.post_ops.append_sum": {"scale": "1.0", "zero_point": "0", "data_type": "None"},
    "attr.post_ops.append_eltwise": {"alg": "'eltwise_relu'", "alpha": "0.5", "beta": "0.0"},
    "attr.post_ops.append_binary": {
        "alg": "'binary_add'", "src1_desc": "md", "src2_desc": "None"
    },
    "attr.post_ops.append_prelu": {"mask": "2"},
    "attr.post_ops.append_depthwise": {
        "weights_dt": "'f32'", "bias_dt": "'f32'", "dst_dt": "'f32'", "kernel": "3", "stride": "1",
        "padding_l": "1",
    },
    "attr.post_ops.append_function": {"": "lambda x, y: x", "*": "(md,)"},
    "attr.post_ops.append": {"entry": "relu"},
    "attr.post_ops.__getitem__": {"": "0"},
    "PrimitiveDesc": {
        "desc": "desc", "engine": "engine", "attr": "attr", "hint": "None", "src_engine": "None"
    },
    "pd.arg_desc": {"arg": "Arg.DST"},
    "pd.next_impl": {},
    "pd.info": {"num_threads": "1"},
    "Primitive": {"pd": "pd"},
    "prim": {"stream": "stream", "args": "args", "after": "()"},
    "prim.execute": {"stream": "stream", "args": "args", "after": "()"},
    "prim.bind": {"stream": "stream", "args": "args"},
    **{f"{name}.forward": {"prop_kind": "'forward_training'", "data_desc": "md", "axis": "1"}
       for name in ("SoftmaxV1Desc", "LogSoftmaxDesc")},
    **{f"{name}.backward": {"diff_data_desc": "md", "data_desc": "md", "axis": "1"}
       for name in ("SoftmaxV1Desc", "LogSoftmaxDesc")},
    "load": {"path": "path"},
    "model": {"": "array"},
    "model.compile": {
        "engine": "engine", "precision": "'f32'", "num_threads": "1", "batch": "None",
        "sizes": "{}", "layout": "'plain'", "progress": "lambda *_: 0", "memory_budget": "1 << 30",
    },
    "model.with_memory_budget": {"nbytes": "1 << 30"},
    "model.with_special_kernels": {"policy": "policy"},
    "model.with_batch": {"batch": "2"},
    "model.with_inputs": {"*": "()"},
    "model.with_shapes": {"input_shapes": "{'x': (2, 3, 4, 5)}"},
    "model.with_random_weights": {"seed": "1"},
    "session": {"": "array", "num_threads": "1"},
    "session.run": {"feeds": "feeds", "num_threads": "1"},
    "session.run_timed": {"feeds": "feeds"},
}  # fmt: skip
"""Functions by the names that `tests.fuzz.calls` gives to the objects, with arguments by keyword;
an empty keyword is by position, a star stands for any number of them."""

_OF_ARRAYS: Arguments = {
    "x": "array", "y": "array", "arrays": "[array, array]", "query": "array", "key": "array",
    "value": "array", "a_min": "-1", "a_max": "1", "kernel_size": "2", "normalized_shape": "5",
    "num_groups": "3", "size": "3", "running_mean": "np.ones(3, 'f4')",
    "running_var": "np.ones(3, 'f4')", "condition": "array > 0", "output_size": "2",
    "pad": "(1, 2)",
}  # fmt: skip
"""What functions on arrays are given by the names of arguments that have no default."""
_IMAGES = {"1d": "array[0]", "2d": "array", "3d": "array[..., None]"}
_OWN: dict[str, Arguments] = {
    "matmul": {"y": "array.swapaxes(2, 3)"},
    "linear": {"weight": "array[0, 0]"},
    "prelu": {"weight": "np.ones(3, 'f4')"},
    "interpolate": {"mode": "'linear'", "x": "array[0]"},
    "embedding": {"x": "np.array([1, 0])", "weight": "array[0, 0]"},
    "pad": {"value": "0.5"},
    "layer_norm": {"weight": "np.ones(5, 'f4')"},
    **{name: {
        "x": "array[0]", "hx": "None", "has_biases": "False",
        "params": f"[np.ones(({gates}, 5), 'f4'), np.ones(({gates}, 1), 'f4')]",
       } for name, gates in (("lstm", 4), ("gru", 3), ("rnn", 1))},
    **{f"{kind}_pool{number}": {"x": image, "kernel_size": "1"}
       for number, image in _IMAGES.items() for kind in ("max", "avg")},
    **{f"adaptive_{kind}_pool{number}": {"x": image}
       for number, image in _IMAGES.items() for kind in ("max", "avg")},
    **{f"conv{number}": {"x": image, "weight": f"{image}[:{1 + (number == '1d')}]"}
       for number, image in _IMAGES.items()},
    **{f"conv_transpose{number}": {"x": image, "weight": f"{image}[:1].swapaxes(0, 1)"}
       for number, image in _IMAGES.items()},
}  # fmt: skip
"""What some of them are given instead."""

PLAIN = (
    "None", "-1", "2**64", "True", "0.5", "float('nan')", "''", "'bogus'", "b'f32'", "()", "[None]",
    "((2, 3),)", "{}", "object()",
)  # fmt: skip
"""A value of each kind, wrong for most arguments."""

WRONG = (
    *PLAIN,
    "0", "1", "2**31", "2**63", "-2**63", "10**400",
    "float('inf')", "-0.0", "1j", "'f32'", "'any'", "'nchw'",
    "'\\0'", "'\\ud800'", "'x' * 100000", "[]", "set()", "(2, 3)", "(0, 3)",
    "(-1, 3)", "(2**40, 2**40)", "(2**62, 4)", "(2.0, 3)", "('2', 3)",
    "(True, 3)", "(1,) * 13", "(1,) * 100000", "range(3)", "iter([2, 3])", "(n for n in (2, 3))",
    "[[[[[[]]]]]]", "endless", "{'a': 1}", "{1: mem}", "RUNTIME_DIM", "(RUNTIME_DIM, 3)", "...",
    "NotImplemented", "int", "Memory", "lambda *_: 0", "np.float32", "np.float32(2)",
    "np.int64(3)", "np.dtype('i1')",
    "np.uint64(2**63)", "np.array([2, 3])", "np.array(2)", "np.zeros((2, 3), 'f4')", "np.zeros(0)",
    "np.array(['a'])", "np.array([None])", "np.zeros(3, 'M8[s]')", "np.nan", "read_only",
    "backward", "array[::-1]", "array[:, ::2]", "array.astype('f2')", "array.astype('c8')",
    "array.astype('>f4')", "bytes(480)", "bytearray(480)", "memoryview(bytearray(480))",
    "memoryview(bytes(480))",
    "bytearray(3)", "md", "mem", "mem.data", "sparse", "matrix", "small",
    "other_type", "elsewhere", "engine", "null",
    "stream", "wide_stream", "null_stream", "desc", "pd", "prim", "attr", "args", "Arg.DST",
    "Alg.eltwise_relu", "DataType.f64", "MemoryDesc.zero()",
    "MemoryDesc((2, 3, 4, 5), 'f32', 'any')",
    "MemoryDesc((RUNTIME_DIM, 3, 4, 5), 'f32', 'nchw')", "MemoryDesc((0, 3), 'f32')",
    "MemoryDesc((2**30, 2**30), 'f32')", "MemoryDesc((2, 3, 4, 5), 'f32', (0, 0, 0, 0))",
    "MemoryDesc((2, 3, 4, 5), 'f4_e2m1')", "Compensation(2**70)", "[event]",
    "{Arg.SRC: mem}", "{**args, Arg.DST: None}", "{**args, Arg.DST: small}",
    "{**args, Arg.DST: other_type}", "{**args, Arg.DST: elsewhere}", "{**args, Arg.DST: array}",
    "{**args, Arg.DST: args[Arg.SRC]}", "{**args, Arg.DST: overlapping}", "{**args, 'dst': mem}",
    "{**args, 99: mem}", "{**args, -1: mem}", "{**args, 2**70: mem}", "{**args, None: None}",
    "{**args, Arg.SCALES | Arg.SRC: mem}", "{**args, Arg.SCRATCHPAD: small}", "{'src': mem}",
    "[(Arg.SRC, mem)]", "'/no/such/file'", "'/'", "b'/dev/null'", "'/dev/null'", "feeds['x']",
    "{'x': None}", "{'x': array, 'y': array}", "{'x': array[0]}", "{'x': array.astype('f8')}",
    "{b'x': array}", "{'x': array.tolist()}", "{'x': 'text'}", "{'x': mem}",
)  # fmt: skip
"""Values, the plainest first; some are right for some arguments."""


def calls() -> dict[str, Arguments]:
    """Every function with arguments that are right."""
    found = dict(GIVEN)
    for name in ops.__all__:
        parameters = inspect.signature(getattr(ops, name)).parameters.values()
        given = {p.name: _OF_ARRAYS.get(p.name, repr(p.default)) for p in parameters}
        found[f"ops.{name}"] = given | _OWN.get(name, {})
    for kind in OPERATIONS.values():
        for text in kind.operation.examples:
            (case, *_) = Interpreter().cases([f"--{kind.operation.driver.name}", *text.split()])
            found.update(_constructors(kind, case))
            break
    for name, alg in _CELLS.items():
        for direction, prop in (("forward", "FWD_I"), ("backward", "BWD_DW")):
            line = ["--rnn", f"--prop={prop}", f"--alg={alg}", "t2mb3sic5"]
            (case,) = Interpreter().cases(line)
            desc = describe(case, OPERATIONS["rnn"])
            keys = inspect.signature(getattr(getattr(dnnl, name), direction)).parameters
            found[f"{name}.{direction}"] = {key: repr(getattr(desc, key)) for key in keys}
    return found


_CELLS = {
    "VanillaRnnDesc": "VANILLA_RNN", "LstmDesc": "VANILLA_LSTM", "GruDesc": "VANILLA_GRU",
    "LbrGruDesc": "LBR_GRU", "AugruDesc": "VANILLA_AUGRU", "LbrAugruDesc": "LBR_AUGRU",
}  # fmt: skip
"""What makes descriptions of recurrent networks, and the cells of each."""


def _constructors(kind: type[Desc], case: CaseValues) -> Iterator[tuple[str, Arguments]]:
    """The ways to make a description, with what a case has in its fields."""
    name = kind.__name__
    passes = [p for p in kind.operation.passes if case.driver.propagation is not None]
    forward = describe(case, kind)
    made: dict[str, Desc] = {name: forward, f"{name}.forward": forward}
    for prop_kind in sorted((p for p in passes if not p.is_forward), key=lambda p: -p.value):
        own = f"{name}.{prop_kind.name}"
        apart = hasattr(kind, prop_kind.name)
        made[own if apart else f"{name}.backward"] = describe(case, kind, prop_kind)
    for called, desc in made.items():
        function = kind if called == name else getattr(kind, called.rpartition(".")[2], None)
        if function is not None:
            names = inspect.signature(function).parameters
            yield called, {key: repr(getattr(desc, key)) for key in names if hasattr(desc, key)}
