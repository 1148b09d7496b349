import numpy as np
import onnx
import pytest

from baseline.formats import onnx_graph


def test_constant_twice_is_one():
    graph = onnx_graph.Graph()
    assert graph.constant("a", np.float32(1)) == graph.constant("a", np.float32(1)) == "a"
    assert graph.constant_bytes == 4
    for other in (np.float32(2), np.float64(1), np.ones(2, np.float32)):
        with pytest.raises(ValueError, match="'a'"):
            graph.constant("a", other)


def test_model_has_what_was_added():
    graph = onnx_graph.Graph()
    total = graph.add("Add", "x", graph.constant("one", np.float32(1)))
    low, scale, zero = graph.add("DynamicQuantizeLinear", total, outputs=3)
    graph.rename(graph.add("DequantizeLinear", low, scale, zero), "y")
    float32 = np.dtype(np.float32)
    model = graph.model(
        {"x": (float32, ["batch", 2])}, {"y": (float32, ["batch", 2])}, {"a": "b", "c": [1, None]}
    )
    onnx.checker.check_model(model, full_check=True)
    assert [node.op_type for node in model.graph.node] == [
        "Add", "DynamicQuantizeLinear", "DequantizeLinear"
    ]
    assert graph.kinds == {"Add", "DynamicQuantizeLinear", "DequantizeLinear"}
    assert {entry.key: entry.value for entry in model.metadata_props} == {
        "a": "b", "c": "[1, null]"
    }
    assert [tensor.name for tensor in model.graph.initializer] == ["one"]
