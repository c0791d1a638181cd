"""A model from an ONNX file runs on arrays: called as it is, or compiled once and called often.

The file is made here, by the onnx package: a convolution, a residual and a classifier.
"""

import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import dnnl

random = np.random.default_rng(1)
weights = {
    "w": random.standard_normal((16, 16, 3, 3), np.float32) / 12,
    "classes": random.standard_normal((16, 10), np.float32) / 4,
}
graph = helper.make_graph(
    [
        helper.make_node("Conv", ["image", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c", "image"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["flat"]),
        helper.make_node("Gemm", ["flat", "classes"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["probabilities"]),
    ],
    "example",
    [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 16, 32, 32])],
    [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["n", 10])],
    [numpy_helper.from_array(array, name) for name, array in weights.items()],
)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "example.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    model = dnnl.load(path)

for name, kind in model.inputs.items():
    print(f"{name}: {kind}")

# A call compiles for the shapes that it meets, and caches what it compiled.
images = random.standard_normal((4, 16, 32, 32), np.float32)
probabilities = model(images)
assert probabilities.shape == (4, 10)
assert np.allclose(probabilities.sum(axis=1), 1, atol=1e-5)

# Where the sizes are known, a session says what runs, and in which layouts.
run = model.compile(batch=1, num_threads=1)
assert np.allclose(run(images[:1]), probabilities[:1], atol=1e-5)
for layer in run.layers:
    print(f"{layer.name}: {layer.primitive} {layer.implementation} -> {layer.layouts['dst']}")
