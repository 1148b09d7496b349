import numpy as np
import pytest
from tensorflow.lite.python import schema_py_generated as schema

from actorQ.core import errors
from actorQ.policy import quantization
from baseline.formats import tflite_graph
from tests.baseline import players


def small():
    graph = tflite_graph.Graph()
    x = graph.input("x", (-1, 3), np.float32)
    odd = graph.constant("odd", np.arange(3, dtype=np.float32))
    affine = quantization.AffineMap(np.float32(0.5), np.int64(-3))
    y = graph.add("QUANTIZE", graph.add("ADD", x, odd), dtype=np.int8, affine=affine)
    graph.constant("seven", np.arange(7, dtype=np.int8))
    return graph, x, y


def test_graph_writes_what_the_schema_reads():
    graph, x, y = small()
    graph.rename(y, "y")

    content = graph.model([x], [y], "some words", {"facts": {"one": [1, None]}})

    model = schema.Model.GetRootAs(content, 0)
    assert model.Description() == b"some words" and model.Version() == 3
    part = model.Subgraphs(0)
    tensors = [part.Tensors(index) for index in range(part.TensorsLength())]
    assert [tensor.Name() for tensor in tensors] == [b"x", b"odd", b"add_0", b"y", b"seven"]
    assert list(tensors[0].ShapeAsNumpy()) == [1, 3]
    assert list(tensors[0].ShapeSignatureAsNumpy()) == [-1, 3]
    assert tensors[3].Type() == schema.TensorType.INT8
    assert tensors[3].Quantization().Scale(0) == 0.5
    assert tensors[3].Quantization().ZeroPoint(0) == -3
    assert players.tflite_metadata(content, "facts") == {"one": [1, None]}
    assert players.tflite_metadata(content, "other") is None
    assert graph.constant_bytes == 12 + 7


@pytest.mark.usefixtures("no_tensorflow")
def test_tflite_files_without_tensorflow_are_refused_with_one_line():
    with pytest.raises(errors.UserError, match="TFLite files need TensorFlow"):
        small()


def test_graph_constants_lie_at_multiples_of_16_bytes():
    graph, x, y = small()
    content = graph.model([x], [y], "", {})
    for array in (np.arange(3, dtype=np.float32), np.arange(7, dtype=np.int8)):
        assert content.index(array.tobytes()) % 16 == 0


def test_graph_constants_are_kept_once():
    graph = tflite_graph.Graph()
    first = graph.constant("a", np.zeros(2))
    assert graph.constant("a", np.zeros(2)) is first
    for other in (np.ones(2), np.zeros(2, np.float32), np.zeros(3)):
        with pytest.raises(ValueError, match="Two constants are called 'a'"):
            graph.constant("a", other)
