"""Calls the C library through ctypes: a policy network and its packed weights.

Imports no framework, so that an actor with this backend needs none.
"""

from collections.abc import Mapping
import ctypes
import functools
import os

import numpy as np

from actorQ.core import errors
from actorQ.policy import architecture as architecture_lib
from actorQ.policy import model_update
from actorQ.policy import quantization
from actorQ.policy.native import compiling

# The order is that of policy.c. Of each processor's sets the fastest is the last.
ISAS = ("portable", "avx2", "avxvnni", "avx512", "neon", "dotprod", "i8mm")

TYPES = {"float32": 0, "float16": 1, "int8": 2, "int4": 3}
# The order is that of kernels.h.
ACTIVATIONS = (
    "none", "tanh", "relu", "leaky_relu", "elu", "silu", "mish", "sigmoid", "gelu", "gelu_tanh",
    "softplus", "hardtanh",
)
MAX_LAYERS = 64


class Layer(ctypes.Structure):
    """Has the same fields in the same order as `Layer` in policy.c."""

    _fields_ = [
        *((name, ctypes.c_int32) for name in (
            "type", "activation", "inputs", "outputs", "nonnegative", "kernel", "stride", "height",
            "width", "channels",
        )),
        ("a", ctypes.c_float), ("b", ctypes.c_float),
    ]


def available() -> bool:
    """Returns whether the library was built."""
    return os.path.exists(compiling.library_path())


@functools.cache
def load() -> ctypes.CDLL:
    """Loads the library.

    Raises:
      errors.UserError: It was not built, or does not load.
    """
    path = compiling.library_path()
    if not os.path.exists(path):
        raise errors.UserError(
            "The native kernels are not built: run ./setup_ubuntu.sh (or .venv/bin/python -m "
            "actorQ.policy.native.build), or use --inference_mode=pytorch."
        )
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise errors.UserError(
            f"The native kernels do not load ({error}): delete actorQ/policy/native/_build and run "
            "./setup_ubuntu.sh again, or use --inference_mode=pytorch."
        ) from None
    pointer, number = ctypes.c_void_p, ctypes.c_int32
    for name, result, arguments in (
        ("isa_usable", number, [number]),
        ("network_new", pointer, [pointer, number, number, number, number]),
        ("network_free", None, [pointer]),
        ("weights_new", pointer, [pointer]),
        ("weights_free", None, [pointer]),
        ("weights_bytes", ctypes.c_size_t, [pointer]),
        ("weights_read", ctypes.c_uint32, [pointer, pointer]),
        ("weights_set", None, [pointer, pointer, number, pointer, pointer, pointer]),
        ("run", None, [pointer, pointer, pointer, number, pointer]),
    ):
        function = getattr(library, f"actorq_{name}")
        function.restype, function.argtypes = result, arguments
    return library


def usable_isas() -> list[str]:
    """Returns the instruction sets that were built and that this processor has, fastest last."""
    library = load()
    return [name for index, name in enumerate(ISAS) if library.actorq_isa_usable(index)]


class Weights:
    """One version of a policy's weights, packed for the kernels."""

    def __init__(self, network: "Network"):
        self._library = load()
        self.pointer = self._library.actorq_weights_new(network.pointer)
        if not self.pointer:
            raise MemoryError("There is no memory for the policy's weights.")

    @property
    def nbytes(self) -> int:
        """Bytes that the packed weights take."""
        return self._library.actorq_weights_bytes(self.pointer)

    def __del__(self) -> None:
        if getattr(self, "pointer", None):
            self._library.actorq_weights_free(self.pointer)


class Network:
    """A policy's layers and scratch memory, for up to `max_batch` observations at a time.

    `pack` may run in another thread than calls. Calls must not overlap each other.
    """

    def __init__(
        self,
        architecture: architecture_lib.PolicyArchitecture,
        scheme: str,
        max_batch: int = 1,
        isa: str | None = None,
    ):
        """Lays out the network.

        Args:
          architecture: Layers of the policy.
          scheme: "float32", "float16", "int8", "int4" or "int3". The last two compute in int4, and
            convolutions and head in int8.
          max_batch: Maximum of observations in one call.
          isa: One of `usable_isas()`, by default the fastest.

        Raises:
          errors.UserError: The library is missing, or no kernel fits the policy's shape.
        """
        self._library = load()
        self.isa = isa or usable_isas()[-1]
        self._layers = layers(architecture, scheme)
        if len(self._layers) > MAX_LAYERS:
            raise errors.UserError(
                f"--inference_mode=native has room for {MAX_LAYERS} layers, but the policy has "
                f"{len(self._layers)}: use --inference_mode=pytorch."
            )
        self.types = {name: tuple(TYPES)[layer.type] for name, layer in self._layers.items()}
        self.pointer = None
        array = (Layer * len(self._layers))(*self._layers.values())
        self.pointer = self._library.actorq_network_new(
            array, len(array), int(architecture.pixels), max_batch, ISAS.index(self.isa)
        )
        if not self.pointer:
            raise MemoryError(
                f"There is no memory for the policy, or the processor lacks {self.isa}."
            )
        dtype = np.uint8 if architecture.pixels else np.float32
        # The buffers are fixed, so that their addresses are taken once and not in every step.
        self._input = np.zeros((max_batch, *architecture.observation_shape), dtype)
        self._output = np.zeros((max_batch, architecture.num_outputs), np.float32)
        self._input_pointer = ctypes.c_void_p(self._input.ctypes.data)
        self._output_pointer = ctypes.c_void_p(self._output.ctypes.data)
        self._run = self._library.actorq_run

    def __del__(self) -> None:
        if getattr(self, "pointer", None):
            self._library.actorq_network_free(self.pointer)

    def pack(self, tensors: Mapping[str, model_update.Tensor]) -> Weights:
        """Packs weights for the kernels.

        Args:
          tensors: torch's names to tensors of the network's scheme, from `forms.expand`.
        """
        weights = Weights(self)
        for index, (name, layer) in enumerate(self._layers.items()):
            values, scale = values_and_scale(tensors[f"{name}.weight"], self.types[name])
            if layer.kernel:
                values = values.transpose(0, 2, 3, 1)
            values = np.ascontiguousarray(values)
            bias = np.ascontiguousarray(model_update.to_float32(tensors[f"{name}.bias"]))
            self._library.actorq_weights_set(
                self.pointer, weights.pointer, index, values.ctypes.data,
                None if scale is None else scale.ctypes.data, bias.ctypes.data,
            )
        return weights

    def read(self, weights: Weights) -> None:
        """Reads every byte of the weights once and does nothing else, as a floor for benchmarks."""
        self._library.actorq_weights_read(self.pointer, weights.pointer)

    def __call__(self, weights: Weights, observations: np.ndarray) -> np.ndarray:
        """Computes the policy.

        Args:
          weights: Weights from `pack`.
          observations: float32 [B, D], or pixels uint8 [B, H, W, C], B up to `max_batch`.

        Returns:
          A new array, float32 [B, num_outputs]. At 8 bits or fewer it holds NaN for an observation
          that is not finite.
        """
        batch = len(observations)
        self._input[:batch] = observations
        self._run(
            self.pointer, weights.pointer, self._input_pointer, batch, self._output_pointer
        )
        return self._output[:batch].copy()


def values_and_scale(
    tensor: model_update.Tensor, kind: str
) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns a layer's weights as the kernels take them, and their scales.

    Args:
      tensor: Weights of the layer, output channel first.
      kind: One of TYPES.

    Returns:
      Weights float32, float16 or int8, and scales: float32 [outputs] for int8, the bits of bfloat16
      [outputs, groups] for int4, otherwise None.

    Raises:
      TypeError: The weights are of another type.
    """
    if kind == "float32":
        return model_update.to_float32(tensor), None
    if kind == "float16":
        return np.asarray(tensor, np.float16), None
    axes = 2 if kind == "int4" else 1
    if not isinstance(tensor, quantization.QuantizedTensor) or tensor.scale.ndim != axes:
        raise TypeError(f"Expected {kind} weights, got {type(tensor)}.")
    if kind == "int8":
        return tensor.values, np.ascontiguousarray(tensor.scale, np.float32)
    return tensor.values, quantization.to_bfloat16(tensor.scale)


def layers(
    architecture: architecture_lib.PolicyArchitecture, scheme: str
) -> dict[str, Layer]:
    """Returns the layers of a policy as policy.c takes them, by name.

    Args:
      architecture: Layers of the policy.
      scheme: "float32", "float16", "int8", "int4" or "int3".

    Raises:
      errors.UserError: No kernel fits a layer.
    """
    found = {}
    if architecture.pixels:
        height, width, _ = architecture.observation_shape
    for name, channels, filters, kernel, stride in architecture.convolutions:
        kind = type_of(scheme, name, axes=4)
        found[name] = Layer(
            TYPES[kind], ACTIVATIONS.index("relu"), kernel * kernel * channels, filters, 1, kernel,
            stride, height, width, channels,
        )
        height, width = (height - kernel) // stride + 1, (width - kernel) // stride + 1
        if filters % 16:
            raise errors.UserError(
                "--inference_mode=native needs convolutions with a multiple of 16 filters."
            )
    behind_relu = architecture.pixels
    for name, inputs, outputs in architecture.linears:
        tanh = name != architecture_lib.HEAD or architecture.head == architecture_lib.TANH_HEAD
        kind = type_of(scheme, name, axes=2)
        found[name] = Layer(
            TYPES[kind], ACTIVATIONS.index("tanh" if tanh else "none"), inputs, outputs,
            int(behind_relu),
        )
        behind_relu = False
    return found


def type_of(scheme: str, layer: str, axes: int) -> str:
    """Returns the type in which the kernels compute a layer, one of TYPES.

    Args:
      scheme: "float32", "float16", "int8", "int4" or "int3".
      layer: Name of the layer.
      axes: Number of axes of its weights.
    """
    if scheme in ("int4", "int3"):  # Integers of 3 bits are some of those of 4 bits.
        return "int4" if architecture_lib.computes_in_int4(layer, axes) else "int8"
    return scheme
