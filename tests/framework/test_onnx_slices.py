"""What ONNX's check says of slices."""

from __future__ import annotations

from onnx import ModelProto, NodeProto, TensorProto, helper

from dnnl.onnx.check import refusal


def int64(name: str, *values: int) -> TensorProto:
    return helper.make_tensor(name, TensorProto.INT64, [len(values)], values)


def model(nodes: list[NodeProto], kind: int = TensorProto.FLOAT) -> ModelProto:
    """Nodes from ``x``, 1 x 3 x 2 x 2, to ``y``."""
    numbers = [int64("begin", 0), int64("end", 2), int64("axis", 2), int64("shape", -3, 3, 2, 2)]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 2, 2])],
        [helper.make_tensor_value_info("y", kind, None)],
        numbers,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


SLICE = helper.make_node("Slice", ["m", "begin", "end", "axis"], ["y"])


def test_slices_of_negative_sizes_do_not_end_the_process() -> None:
    """ONNX's inference infers such sizes silently, and aborts at a Slice of them."""
    for node in (
        helper.make_node("MaxPool", ["x"], ["m"], kernel_shape=[5, 5]),
        helper.make_node("Expand", ["x", "shape"], ["m"]),
    ):
        assert refusal(model([node, SLICE])) == ""
        inside = helper.make_graph(
            [node, SLICE], "inside", [], [helper.make_empty_tensor_value_info("y")]
        )
        condition = helper.make_node(
            "Constant", [], ["c"], value=helper.make_tensor("", TensorProto.BOOL, [], [True])
        )
        branches = {"then_branch": inside, "else_branch": inside}
        assert refusal(model([condition, helper.make_node("If", ["c"], ["y"], **branches)])) == ""


def test_what_follows_from_slices_of_a_shape_is_known() -> None:
    """As exported resizes to the size of another image have it."""
    nodes = [
        helper.make_node("Shape", ["x"], ["all"]),
        helper.make_node("Slice", ["all", "begin", "end"], ["outer"]),
        helper.make_node("Concat", ["outer", "image"], ["sizes"], axis=0),
        helper.make_node("Resize", ["x", "", "", "sizes"], ["y"]),
    ]
    proto = model(nodes)
    proto.graph.initializer.append(int64("image", 5, 7))
    assert refusal(proto) == ""


def test_types_behind_a_slice_are_checked() -> None:
    node = helper.make_node("MaxPool", ["x"], ["m"], kernel_shape=[1, 1])
    message = "Inferred elem type differs from existing elem type: (1) vs (7)"
    assert message in refusal(model([node, SLICE], TensorProto.INT64))
