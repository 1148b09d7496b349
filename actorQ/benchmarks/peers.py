"""Policies in ONNX Runtime, which a user could run instead of our backends."""

from collections.abc import Callable
from collections.abc import Mapping
import copy
import logging
import os
import tempfile
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx import numpy_helper
import onnxruntime
from onnxruntime import quantization as onnx_quantization
from onnxruntime.quantization import matmul_4bits_quantizer

from actorQ.policy import architecture as architecture_lib

logging.getLogger().setLevel(logging.WARNING)  # The quantizers turn the root logger to INFO.

_OPSET = 17
_IR_VERSION = 8  # The pinned runtime refuses newer versions.
_BLOCK = 128  # Inputs that share a scale in MatMulNBits.


def onnx_policy(
    architecture: architecture_lib.PolicyArchitecture, weights: Mapping[str, np.ndarray]
) -> onnx.ModelProto:
    """Builds the graph of a policy for one observation.

    Args:
      architecture: Layers of the policy.
      weights: float32, under torch's names and in its layouts.

    Returns:
      A model with input "observation", float32 [1, D] or pixels uint8 [1, H, W, C], and output
      "output", float32 [1, num_outputs].
    """
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, np.ndarray] = {}

    def add(kind: str, inputs: list[str], **attributes: Any) -> str:
        output = f"value_{len(nodes)}"
        nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def constant(name: str, array: np.ndarray) -> str:
        constants[name] = array
        return name

    value = "observation"
    kind = onnx.TensorProto.FLOAT
    if architecture.pixels:
        kind = onnx.TensorProto.UINT8
        value = add("Cast", [value], to=onnx.TensorProto.FLOAT)
        value = add("Div", [value, constant("white", np.array(255, np.float32))])
        value = add("Transpose", [value], perm=[0, 3, 1, 2])
        for name, _, _, _, stride in architecture.convolutions:
            weight = constant(f"{name}.weight", weights[f"{name}.weight"])
            bias = constant(f"{name}.bias", weights[f"{name}.bias"])
            value = add("Conv", [value, weight, bias], strides=[stride, stride])
            value = add("Relu", [value])
        value = add("Flatten", [add("Transpose", [value], perm=[0, 2, 3, 1])])
    for name, _, _ in architecture.linears:
        weight = constant(f"{name}.weight", np.ascontiguousarray(weights[f"{name}.weight"].T))
        value = add("MatMul", [value, weight])
        value = add("Add", [value, constant(f"{name}.bias", weights[f"{name}.bias"])])
        if name != architecture_lib.HEAD or architecture.head == architecture_lib.TANH_HEAD:
            value = add("Tanh", [value])
    nodes[-1].output[0] = "output"
    shape = [1, *architecture.observation_shape]
    graph = helper.make_graph(
        nodes, "policy",
        [helper.make_tensor_value_info("observation", kind, shape)],
        [helper.make_tensor_value_info(
            "output", onnx.TensorProto.FLOAT, [1, architecture.num_outputs]
        )],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION
    )


def to_int8(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns the model with int8 weights, and activations quantized on the fly.

    Weights are signed and per channel. With convolutions they are unsigned and per tensor, because
    the runtime has ConvInteger for these only.
    """
    convolutions = any(node.op_type == "Conv" for node in model.graph.node)
    kind = onnx_quantization.QuantType
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "int8.onnx")
        onnx_quantization.quantize_dynamic(
            copy.deepcopy(model), path, per_channel=not convolutions,
            weight_type=kind.QUInt8 if convolutions else kind.QInt8,
        )
        return onnx.load(path)


def to_int4(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns the model with matrices of 4 bits in blocks (MatMulNBits, int8 activations)."""
    quantizer = matmul_4bits_quantizer.MatMul4BitsQuantizer(
        copy.deepcopy(model), block_size=_BLOCK, is_symmetric=True, accuracy_level=4
    )
    quantizer.process()
    return quantizer.model.model


def onnx_call(model: onnx.ModelProto, observation: np.ndarray) -> Callable[[], np.ndarray]:
    """Returns a function that runs the model on one observation with one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    feed = {"observation": observation}
    return lambda: session.run(None, feed)[0]
