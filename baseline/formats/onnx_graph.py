"""Builds ONNX graphs node by node, for ONNX Runtime.

Knows nothing of policies; `integer` writes them with it.
"""

from collections.abc import Mapping
import json
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx import numpy_helper

OPSET = 17
IR_VERSION = 8  # Newer ones are refused by the pinned runtime.
MICROSOFT = "com.microsoft"  # ONNX Runtime's own operators.
_MICROSOFT_KINDS = ("MatMulIntegerToFloat", "DynamicQuantizeMatMul", "MatMulNBits")


class Graph:
    """Nodes and constants in the order in which they were added; values are known by name."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, np.ndarray] = {}

    @property
    def constant_bytes(self) -> int:
        """Bytes of all constants: weights, biases, scales, zero points, bounds."""
        return sum(array.nbytes for array in self._constants.values())

    @property
    def kinds(self) -> set[str]:
        """The operators in use."""
        return {node.op_type for node in self._nodes}

    def add(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Adds a node.

        Args:
          kind: operator, of ONNX or one of ONNX Runtime's that we use.
          *inputs: names of values; "" for one that is left out.
          outputs: how many the operator has.
          **attributes: of the operator.

        Returns:
          The name of its output, or a tuple of names where there are several.
        """
        names = tuple(f"value_{len(self._nodes)}_{index}" for index in range(outputs))
        domain = MICROSOFT if kind in _MICROSOFT_KINDS else ""
        name = f"{kind}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, names, name, domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, name: str, array: np.ndarray | np.generic) -> str:
        """Adds a constant, in the array's type and shape, and returns its name.

        Adding one again is harmless.

        Raises:
          ValueError: another constant has that name.
        """
        array = np.ascontiguousarray(array) if np.ndim(array) else np.asarray(array)
        known = self._constants.setdefault(name, array)
        if known.dtype != array.dtype or not np.array_equal(known, array):
            raise ValueError(f"Two constants are called {name!r}.")
        return name

    def rename(self, old: str, new: str) -> str:
        """Gives a value that a node puts out the name by which users ask for it."""
        for node in self._nodes:
            for names in (node.input, node.output):
                for index, name in enumerate(names):
                    if name == old:
                        names[index] = new
        return new

    def model(
        self,
        inputs: Mapping[str, tuple[np.dtype, list[int | str]]],
        outputs: Mapping[str, tuple[np.dtype, list[int | str]]],
        metadata: Mapping[str, Any],
    ) -> onnx.ModelProto:
        """Returns the checked model.

        Args:
          inputs: name to dtype and shape; a dimension that may vary has a name.
          outputs: likewise.
          metadata: written into the file as text; what is no string as JSON.
        """
        graph = helper.make_graph(
            self._nodes,
            "policy",
            [_describe(name, *of) for name, of in inputs.items()],
            [_describe(name, *of) for name, of in outputs.items()],
            [numpy_helper.from_array(array, name) for name, array in self._constants.items()],
        )
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
        helper.set_model_props(
            model,
            {
                key: value if isinstance(value, str) else json.dumps(value)
                for key, value in metadata.items()
            },
        )
        onnx.checker.check_model(model)
        return model


def metadata(model: onnx.ModelProto) -> dict[str, Any]:
    """Returns the metadata that `Graph.model` wrote."""
    return {entry.key: _value(entry.value) for entry in model.metadata_props}


def _value(text: str) -> Any:
    """Returns a word as it is, and what the JSON of all other texts says."""
    is_word = text.isidentifier() and text not in ("true", "false", "null")
    return text if is_word else json.loads(text)


def _describe(name: str, dtype: np.dtype, shape: list[int | str]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), shape)
