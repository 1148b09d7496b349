"""Builds TFLite models operator by operator: the flatbuffer itself, without the converter.

The converter would choose scales and zero points of its own. The module knows nothing of policies,
which `tflite_policy` writes with it. `Graph` loads TensorFlow, whose schema this uses.

Files have a checksum in their metadata, which `run_policy` checks: TFLite's interpreter does not
survive damaged files. Three bytes changed at random end the process, in one of a few trials.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import hashlib
import json
from typing import Any
from typing import NamedTuple

import numpy as np

from actorQ.policy import quantization
from baseline.agents import optional_tensorflow

_FILE_IDENTIFIER = b"TFL3"
_SCHEMA_VERSION = 3
_ALIGNMENT = 16  # The schema asks for it: kernels read constants where they lie.
_SIGNATURE = "serving_default"
_NO_CHECKSUM = b"sha256:" + 64 * b"0"  # Stands in the file while its checksum is computed.
# By operator: the name of its options in the schema, if any, and the version that suffices.
_KINDS: Mapping[str, tuple[str | None, int]] = {
    "ABS": (None, 1),
    "ADD": ("AddOptions", 1),
    "ARG_MAX": ("ArgMaxOptions", 1),
    "BATCH_MATMUL": ("BatchMatMulOptions", 2),
    "CAST": ("CastOptions", 1),
    "CONCATENATION": ("ConcatenationOptions", 1),
    "CONV_2D": ("Conv2DOptions", 3),
    "DEQUANTIZE": ("DequantizeOptions", 2),
    "DIV": ("DivOptions", 1),
    "ELU": (None, 1),
    "EQUAL": ("EqualOptions", 1),
    "EXP": ("ExpOptions", 1),
    "FULLY_CONNECTED": ("FullyConnectedOptions", 1),
    "GATHER": ("GatherOptions", 2),
    "GELU": ("GeluOptions", 1),
    "GREATER": ("GreaterOptions", 1),
    "LEAKY_RELU": ("LeakyReluOptions", 1),
    "LOG": (None, 1),
    "LOGISTIC": (None, 1),
    "MAXIMUM": ("MaximumMinimumOptions", 2),
    "MEAN": ("ReducerOptions", 1),
    "MINIMUM": ("MaximumMinimumOptions", 2),
    "MUL": ("MulOptions", 1),
    "PADV2": ("PadV2Options", 2),
    "QUANTIZE": ("QuantizeOptions", 1),
    "RELU": (None, 1),
    "RESHAPE": ("ReshapeOptions", 1),
    "SQRT": (None, 1),
    "SUB": ("SubOptions", 1),
    "TANH": (None, 1),
    "TRANSPOSE": ("TransposeOptions", 2),
}
# Larger codes stand in a field of their own, and the old field then holds this one.
_LAST_OLD_CODE = 127


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A tensor of the graph.

    Attributes:
      index: Its index in the file.
      shape: Its shape, with -1 first where it depends on the batch.
      dtype: Its dtype, numpy's.
      affine: Map of its integers that the file states; None: the file states none.
    """

    index: int
    shape: tuple[int, ...]
    dtype: np.dtype
    affine: quantization.AffineMap | None = None


class Graph:
    """Operators in the order in which they were added, and in which they run."""

    def __init__(self) -> None:
        with optional_tensorflow.needed_for("TFLite files"):
            from tensorflow.lite.python import schema_py_generated
        self._schema: Any = schema_py_generated
        self._tensors: list[Any] = []
        self._constants: dict[str, tuple[Tensor, np.ndarray]] = {}
        self._operators: list[Any] = []
        self._kinds: dict[str, int] = {}  # Versions by operator, in the order of the file.
        # The first buffer is empty and belongs to tensors that are no constants.
        self._buffers: list[Any] = [self._object("Buffer")]

    @property
    def constant_bytes(self) -> int:
        """Bytes of all constants: weights, biases, scales, shapes, tables."""
        return sum(array.nbytes for _, array in self._constants.values())

    def input(
        self,
        name: str,
        shape: Sequence[int],
        dtype: Any,
        affine: quantization.AffineMap | None = None,
    ) -> Tensor:
        """Adds a tensor that users fill."""
        return self._tensor(name, tuple(shape), np.dtype(dtype), affine)

    def constant(
        self, name: str, array: np.ndarray, affine: quantization.AffineMap | None = None
    ) -> Tensor:
        """Adds a constant in the array's type and shape, or returns the one of that name.

        Args:
          name: Its name.
          array: Its numbers.
          affine: Map of its integers, one or one for each index of axis 0; None: none.

        Raises:
          ValueError: Another constant has that name.
        """
        array = np.asarray(array, order="C")
        if name not in self._constants:
            tensor = self._tensor(name, array.shape, array.dtype, affine)
            self._tensors[-1].buffer = self._buffer(array.tobytes())
            self._constants[name] = tensor, array
        tensor, known = self._constants[name]
        if known.dtype != array.dtype or not np.array_equal(known, array):
            raise ValueError(f"Two constants are called {name!r}.")
        return tensor

    def add(
        self,
        kind: str,
        *inputs: Tensor,
        shape: Sequence[int] | None = None,
        dtype: Any = None,
        affine: quantization.AffineMap | None = None,
        version: int | None = None,
        **options: Any,
    ) -> Tensor:
        """Adds an operator.

        Args:
          kind: The operator, one of `_KINDS`.
          *inputs: Its inputs.
          shape: Shape of its output; None: the first input's.
          dtype: Dtype of its output; None: the first input's.
          affine: Map of its output's integers, which the file states; None: none.
          version: Version of the operator that can do this; None: the one in `_KINDS`.
          **options: Its options, by their names in the schema's object API.

        Returns:
          Its output.
        """
        output = self._tensor(
            f"{kind.lower()}_{len(self._operators)}",
            inputs[0].shape if shape is None else tuple(shape),
            inputs[0].dtype if dtype is None else np.dtype(dtype),
            affine,
        )
        self._kinds[kind] = max(self._kinds.get(kind, 0), version or _KINDS[kind][1])
        operator = self._object(
            "Operator", opcodeIndex=list(self._kinds).index(kind),
            inputs=[tensor.index for tensor in inputs], outputs=[output.index],
        )
        options_name, _ = _KINDS[kind]
        if options_name is not None:
            operator.builtinOptionsType = getattr(self._schema.BuiltinOptions, options_name)
            operator.builtinOptions = self._object(options_name, **options)
        self._operators.append(operator)
        return output

    def rename(self, tensor: Tensor, name: str) -> None:
        """Gives a tensor the name by which users ask for it."""
        self._tensors[tensor.index].name = name

    def model(
        self,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        description: str,
        metadata: Mapping[str, Mapping[str, Any]],
    ) -> bytes:
        """Returns the file.

        Args:
          inputs: Tensors that users fill.
          outputs: Tensors that users read.
          description: One line for people.
          metadata: Entries by name, kept as JSON.
        """
        import flatbuffers

        def listed(tensors: Sequence[Tensor]) -> list[int]:
            return [tensor.index for tensor in tensors]

        def entries(tensors: Sequence[Tensor]) -> list[Any]:
            return [
                self._object("TensorMap", name=self._tensors[index].name, tensorIndex=index)
                for index in listed(tensors)
            ]

        texts = {name: json.dumps(facts).encode() for name, facts in metadata.items()}
        model = self._object(
            "Model",
            version=_SCHEMA_VERSION,
            description=description,
            operatorCodes=[self._code(kind) for kind in self._kinds],
            subgraphs=[
                self._object(
                    "SubGraph", name="policy", tensors=self._tensors, operators=self._operators,
                    inputs=listed(inputs), outputs=listed(outputs),
                )
            ],
            signatureDefs=[
                self._object(
                    "SignatureDef", signatureKey=_SIGNATURE, inputs=entries(inputs),
                    outputs=entries(outputs),
                )
            ],
            metadata=[
                self._object("Metadata", name=name, buffer=self._buffer(text))
                for name, text in {**texts, "checksum": _NO_CHECKSUM}.items()
            ],
            buffers=self._buffers,
        )
        builder = flatbuffers.Builder()
        builder.Finish(model.Pack(builder), _FILE_IDENTIFIER)
        content = bytes(builder.Output())
        digest = hashlib.sha256(content).hexdigest().encode()
        return content.replace(_NO_CHECKSUM, b"sha256:" + digest)

    def _object(self, kind: str, **fields: Any) -> Any:
        """Returns an object of the schema; numpy's dtypes become the schema's."""
        made = getattr(self._schema, f"{kind}T")()
        for name, value in fields.items():
            if isinstance(value, np.dtype):
                value = getattr(self._schema.TensorType, value.name.upper())
            setattr(made, name, value)
        return made

    def _tensor(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: np.dtype,
        affine: quantization.AffineMap | None = None,
    ) -> Tensor:
        # A shape that depends on the batch is written for one observation, and marked as free.
        made = self._object("Tensor", name=name, type=dtype, shape=[abs(size) for size in shape])
        if -1 in shape:
            made.shapeSignature = list(shape)
        if affine is not None:
            made.quantization = self._object(
                "QuantizationParameters", scale=np.atleast_1d(np.asarray(affine.delta, np.float32)),
                zeroPoint=np.atleast_1d(np.asarray(affine.zero_point, np.int64)),
            )
        self._tensors.append(made)
        return Tensor(len(self._tensors) - 1, shape, dtype, affine)

    def _buffer(self, content: bytes) -> int:
        """Returns the index of a new buffer."""
        self._buffers.append(_Buffer(self._schema, content))
        return len(self._buffers) - 1

    def _code(self, kind: str) -> Any:
        code = getattr(self._schema.BuiltinOperator, kind)
        return self._object(
            "OperatorCode", builtinCode=code, version=self._kinds[kind],
            deprecatedBuiltinCode=min(code, _LAST_OLD_CODE),
        )


class _Buffer(NamedTuple):
    """Data at multiples of 16 bytes; the generated code does not align it."""

    schema: Any
    data: bytes

    def Pack(self, builder: Any) -> int:  # noqa: N802 (The schema's name.)
        """Writes it."""
        builder.StartVector(1, len(self.data), _ALIGNMENT)
        builder.head -= len(self.data)
        builder.Bytes[builder.head : builder.head + len(self.data)] = self.data
        data = builder.EndVector()
        self.schema.BufferStart(builder)
        self.schema.BufferAddData(builder, data)
        return self.schema.BufferEnd(builder)
