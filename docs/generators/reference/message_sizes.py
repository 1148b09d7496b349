"""Sizes of model messages, computed by the code that encodes them."""

from collections.abc import Callable
import functools

import numpy as np

from actorQ.policy import architecture as architecture_lib
from actorQ.policy import forms
from actorQ.policy import model_update
from actorQ.wire import messages
from docs.generators import tables

_WIDTHS = (256, 2048)
_FORMS: tuple[tuple[str, str, int, int, bool], ...] = (
    # Flags, what a matrix becomes, and the arguments of `forms.to_actor_form`.
    ("`--quantize 32`", "fp32", 32, 32, False),
    ("`--quantize 16`", "fp16", 16, 32, False),
    ("`--quantize 8`", "int8, one scale an output channel", 8, 32, False),
    ("`--quantize 4`", "int4, one scale for 64 inputs of an output", 4, 32, False),
    ("`--quantize 3`", "int3, one scale for 64 inputs of an output", 3, 32, False),
    ("`--quantize 8 --quantize_communication 4`", "4-bit integers", 8, 4, False),
    ("`--quantize 32 --quantize_communication 2`", "2-bit integers", 32, 2, False),
    ("`--quantize 32 --weight_compress 1`", "8-bit integers, biases too", 32, 32, True),
)


def sizes() -> str:
    """Returns the table of message sizes as shares of the bytes in fp32."""
    policies = [_weights(width) for width in _WIDTHS]
    rows = [
        [flags, form, *(_share(weights, bits, wire_bits, compress) for weights in policies)]
        for flags, form, bits, wire_bits, compress in _FORMS
    ]
    pushes = [_size_of_push(weights) for weights in policies]
    rows.append(["`--push_precision bfloat16`", "bfloat16, to the broadcaster only", *pushes])
    head = ["Flags", "A weight matrix travels as", *(f"3x{width}" for width in _WIDTHS)]
    return tables.table(head, rows, text_columns=2)


@functools.cache
def _weights(width: int) -> dict[str, np.ndarray]:
    """Returns a policy with walker_stand's shapes and three hidden layers."""
    architecture = architecture_lib.PolicyArchitecture(
        (24,), (width, width, width), 6, architecture_lib.TANH_HEAD
    )
    rng = np.random.default_rng(0)
    return {
        name: rng.standard_normal(shape, np.float32)
        for name, shape in architecture.parameter_shapes.items()
    }


def _share(
    weights: dict[str, np.ndarray], quantize: int, communication: int, compress: bool
) -> str:
    update = forms.to_actor_form(weights, 1, quantize, communication, compress)
    return _part_of_fp32(update)


def _size_of_push(weights: dict[str, np.ndarray]) -> str:
    halves: dict[str, model_update.Tensor] = {
        name: model_update.Bfloat16((array.view(np.uint32) >> 16).astype(np.uint16))
        for name, array in weights.items()
    }
    return _part_of_fp32(model_update.ModelUpdate(1, forms.LEARNER_SCHEME, halves))


def _part_of_fp32(update: model_update.ModelUpdate) -> str:
    size = sum(part.nbytes for part in messages.encode(update))
    return f"{size / messages.fp32_bytes(update):.3f}"


BLOCKS: dict[str, Callable[[], str]] = {"sizes": sizes}
