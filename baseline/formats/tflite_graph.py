"""Builds TFLite models operator by operator: the flatbuffer itself, without the converter.

The converter would choose scales and zero points of its own. Knows nothing of policies;
`tflite_model` writes them with it. TensorFlow, whose schema this uses, is loaded by `Graph.model`.

Files have a checksum in their metadata: TFLite's interpreter does not survive damaged ones (3 bytes
changed at random end the process, in one of a few trials).
"""

from collections.abc import Mapping
from collections.abc import Sequence
import hashlib
import json
from typing import Any
from typing import NamedTuple

import numpy as np

from actorQ.policy import quantization
from baseline.agents import optional_tensorflow

WHAT = "TFLite files"
_FILE_IDENTIFIER = b"TFL3"
_SCHEMA_VERSION = 3
_ALIGNMENT = 16  # Of constants, as the schema asks for: kernels read them where they are.
_SIGNATURE = "serving_default"
_NO_CHECKSUM = b"sha256:" + 64 * b"0"  # What the checksum is made with.
# Operator to its options in the schema (if any) and to the version that has what is used of it.
_KINDS: Mapping[str, tuple[str | None, int]] = {
    "ADD": ("AddOptions", 1),
    "ARG_MAX": ("ArgMaxOptions", 1),
    "BATCH_MATMUL": ("BatchMatMulOptions", 2),
    "CAST": ("CastOptions", 1),
    "DEQUANTIZE": ("DequantizeOptions", 2),
    "DIV": ("DivOptions", 1),
    "ELU": (None, 1),
    "FULLY_CONNECTED": ("FullyConnectedOptions", 1),
    "GATHER": ("GatherOptions", 2),
    "MAXIMUM": ("MaximumMinimumOptions", 2),
    "MINIMUM": ("MaximumMinimumOptions", 2),
    "MUL": ("MulOptions", 1),
    "PADV2": ("PadV2Options", 2),
    "QUANTIZE": ("QuantizeOptions", 1),
    "RELU": (None, 1),
    "RESHAPE": ("ReshapeOptions", 1),
    "SUB": ("SubOptions", 1),
    "TANH": (None, 1),
    "TRANSPOSE": ("TransposeOptions", 2),
}
# Codes above stand in a field of their own, this one in the old field.
_LAST_OLD_CODE = 127


class Tensor(NamedTuple):
    """A tensor of the graph.

    Attributes:
      index: in the file.
      shape: -1 first where it depends on the batch.
      dtype: numpy's.
      affine: what integers stand for, as far as the file says; None: nothing.
    """

    index: int
    shape: tuple[int, ...]
    dtype: np.dtype
    affine: quantization.AffineMap | None = None


class _Operator(NamedTuple):
    kind: str
    inputs: tuple[int, ...]
    output: int
    options: Mapping[str, Any]


class Graph:
    """Operators in the order in which they were added, which is that of their execution."""

    def __init__(self) -> None:
        self._tensors: list[Tensor] = []
        self._names: list[str] = []
        self._constants: dict[int, np.ndarray] = {}
        self._operators: list[_Operator] = []

    @property
    def constant_bytes(self) -> int:
        """Bytes of all constants: weights, biases, scales, shapes, tables."""
        return sum(array.nbytes for array in self._constants.values())

    def input(
        self,
        name: str,
        shape: Sequence[int],
        dtype: Any,
        affine: quantization.AffineMap | None = None,
    ) -> Tensor:
        """Adds a tensor that users fill."""
        return self._tensor(name, tuple(shape), np.dtype(dtype), affine)

    def constant(self, name: str, array: np.ndarray) -> Tensor:
        """Adds a constant in the array's type and shape, or returns the one of that name.

        Raises:
          ValueError: another constant has that name.
        """
        array = np.asarray(array, order="C")
        for index, known in self._constants.items():
            if self._names[index] == name:
                if known.dtype != array.dtype or not np.array_equal(known, array):
                    raise ValueError(f"Two constants are called {name!r}.")
                return self._tensors[index]
        tensor = self._tensor(name, array.shape, array.dtype, None)
        self._constants[tensor.index] = array
        return tensor

    def add(
        self,
        kind: str,
        *inputs: Tensor,
        shape: Sequence[int] | None = None,
        dtype: Any = None,
        affine: quantization.AffineMap | None = None,
        **options: Any,
    ) -> Tensor:
        """Adds an operator.

        Args:
          kind: one of the schema's that are in use here.
          *inputs: its inputs.
          shape: of its output; None: the first input's.
          dtype: of its output; None: the first input's.
          affine: what the file shall say of integers in its output.
          **options: by their names in the schema's object API.

        Returns:
          Its output.
        """
        output = self._tensor(
            f"{kind.lower()}_{len(self._operators)}",
            inputs[0].shape if shape is None else tuple(shape),
            inputs[0].dtype if dtype is None else np.dtype(dtype),
            affine,
        )
        self._operators.append(
            _Operator(kind, tuple(tensor.index for tensor in inputs), output.index, options)
        )
        return output

    def rename(self, tensor: Tensor, name: str) -> None:
        """Gives a tensor the name by which users ask for it."""
        self._names[tensor.index] = name

    def model(
        self,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        description: str,
        metadata: Mapping[str, Mapping[str, Any]],
    ) -> bytes:
        """Returns the file.

        Args:
          inputs: that users fill.
          outputs: that users read.
          description: one line for people.
          metadata: entries by name, kept as JSON.
        """
        with optional_tensorflow.needed_for(WHAT):
            import flatbuffers
            from tensorflow.lite.python import schema_py_generated as schema

        buffers = _Buffers(schema)
        graph = schema.SubGraphT()
        graph.name = "policy"
        graph.tensors = [
            self._packed_tensor(schema, tensor, buffers) for tensor in self._tensors
        ]
        codes: list[str] = []
        graph.operators = [_operator(schema, operator, codes) for operator in self._operators]
        graph.inputs = [tensor.index for tensor in inputs]
        graph.outputs = [tensor.index for tensor in outputs]
        signature = schema.SignatureDefT()
        signature.signatureKey = _SIGNATURE
        signature.inputs = [self._entry(schema, tensor) for tensor in inputs]
        signature.outputs = [self._entry(schema, tensor) for tensor in outputs]
        model = schema.ModelT()
        model.version = _SCHEMA_VERSION
        model.description = description
        model.operatorCodes = [_code(schema, kind) for kind in codes]
        model.subgraphs = [graph]
        model.signatureDefs = [signature]
        model.metadata = []
        texts = {name: json.dumps(facts).encode() for name, facts in metadata.items()}
        for name, text in {**texts, "checksum": _NO_CHECKSUM}.items():
            entry = schema.MetadataT()
            entry.name = name
            entry.buffer = buffers.add(text)
            model.metadata.append(entry)
        model.buffers = buffers.made
        builder = flatbuffers.Builder()
        builder.Finish(model.Pack(builder), _FILE_IDENTIFIER)
        content = bytes(builder.Output())
        return content.replace(_NO_CHECKSUM, b"sha256:" + _digest(content))

    def _tensor(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: np.dtype,
        affine: quantization.AffineMap | None,
    ) -> Tensor:
        tensor = Tensor(len(self._tensors), shape, dtype, affine)
        self._tensors.append(tensor)
        self._names.append(name)
        return tensor

    def _packed_tensor(self, schema: Any, tensor: Tensor, buffers: "_Buffers") -> Any:
        made = schema.TensorT()
        made.name = self._names[tensor.index]
        made.type = _type(schema, tensor.dtype)
        # What depends on the batch is written for one observation, and marked as free.
        made.shape = [abs(size) for size in tensor.shape]
        if -1 in tensor.shape:
            made.shapeSignature = list(tensor.shape)
        if tensor.index in self._constants:
            made.buffer = buffers.add(self._constants[tensor.index].tobytes())
        if tensor.affine is not None:
            made.quantization = schema.QuantizationParametersT()
            made.quantization.scale = np.array([tensor.affine.delta], np.float32)
            made.quantization.zeroPoint = np.array([tensor.affine.zero_point], np.int64)
        return made

    def _entry(self, schema: Any, tensor: Tensor) -> Any:
        made = schema.TensorMapT()
        made.name, made.tensorIndex = self._names[tensor.index], tensor.index
        return made


class _Buffers:
    """The file's buffers; the first one is empty, and that of tensors that are no constants."""

    def __init__(self, schema: Any):
        class Aligned(schema.BufferT):
            """Data at multiples of 16 bytes, which the generated code does not care for."""

            def Pack(self, builder: Any) -> int:  # noqa: N802 (The schema's name.)
                """Writes it."""
                builder.StartVector(1, len(self.data), _ALIGNMENT)
                builder.head -= len(self.data)
                builder.Bytes[builder.head : builder.head + len(self.data)] = self.data
                data = builder.EndVector()
                schema.BufferStart(builder)
                schema.BufferAddData(builder, data)
                return schema.BufferEnd(builder)

        self._make = Aligned
        self.made = [schema.BufferT()]

    def add(self, content: bytes) -> int:
        """Returns the index of a new buffer."""
        buffer = self._make()
        buffer.data = content
        self.made.append(buffer)
        return len(self.made) - 1


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def _operator(schema: Any, operator: _Operator, codes: list[str]) -> Any:
    if operator.kind not in codes:
        codes.append(operator.kind)
    made = schema.OperatorT()
    made.opcodeIndex = codes.index(operator.kind)
    made.inputs, made.outputs = list(operator.inputs), [operator.output]
    options_name, _ = _KINDS[operator.kind]
    if options_name is not None:
        made.builtinOptionsType = getattr(schema.BuiltinOptions, options_name)
        made.builtinOptions = getattr(schema, f"{options_name}T")()
        for name, value in operator.options.items():
            if isinstance(value, np.dtype):
                value = _type(schema, value)
            setattr(made.builtinOptions, name, value)
    return made


def _code(schema: Any, kind: str) -> Any:
    made = schema.OperatorCodeT()
    made.builtinCode = getattr(schema.BuiltinOperator, kind)
    made.deprecatedBuiltinCode = min(made.builtinCode, _LAST_OLD_CODE)
    made.version = _KINDS[kind][1]
    return made


def _type(schema: Any, dtype: np.dtype) -> int:
    return getattr(schema.TensorType, dtype.name.upper())
