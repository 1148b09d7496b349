"""Ways to damage a model message, each drawn at random, for the fuzzer and its tests.

A fault takes a whole message and returns a damaged one. A bad line leaves the checksum of the sent
message. A broken or malicious sender makes a checksum that fits. This module imports numpy only.
"""

from collections.abc import Callable
import json
from typing import Any
from typing import NamedTuple

import numpy as np

from actorQ.wire import messages


class Message(NamedTuple):
    """The two arrays of a message, which should be uint8 [bytes]."""

    header: np.ndarray
    blob: np.ndarray


Fault = Callable[[Message, np.random.Generator], Message]

# Values that may stand in a field where another belongs.
JUNK: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2**31, 2**63, 10**40, 1.5, 1e308, "", "x", "int8", [], [[]], {},
    [0], [-1], [1, 2], {"name": "x"},
)
_NUMBERS = {
    "NaN": np.nan, "infinity": np.inf, "negative infinity": -np.inf,
    "the largest number": np.finfo(np.float32).max,
}


def draw(kind: str, message: Message, rng: np.random.Generator) -> Message:
    """Returns a message with a fault of a kind.

    Args:
      kind: One of `FAULTS`.
      message: Whole message, which is not changed.
      rng: Source of the place and the values.
    """
    return FAULTS[kind](message, rng)


def refit(message: Message, **changes: Any) -> Message:
    """Returns the message with replaced fields and, if not replaced, a checksum that fits."""
    fields = json.loads(message.header.tobytes()) | changes
    if "checksum" not in changes:
        fields["checksum"] = messages.checksum(fields, message.blob)
    return Message(messages.header_bytes(fields), message.blob)


def _truncated(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return array[: rng.integers(array.size)].copy()


def _flipped(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    damaged = array.copy()
    for place in rng.choice(array.size, size=rng.integers(1, 5), replace=False):
        damaged[place] ^= np.uint8(1 << rng.integers(8))
    return damaged


def _longer(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.append(array, rng.integers(256, size=rng.integers(1, 100), dtype=np.uint8))


def _random(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(256, size=rng.integers(0, 400), dtype=np.uint8)


def _other_array(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    forms = (
        array.astype(np.int8), array.astype(np.float32), array[None], array.reshape(-1, 1),
        array[:0], np.zeros((), np.uint8), array.astype(np.int64), array.astype(bool),
    )
    return forms[rng.integers(len(forms))]


def _entries_of(message: Message) -> list[dict[str, Any]]:
    return json.loads(message.header.tobytes())["entries"]


def _entry_field(message: Message, rng: np.random.Generator) -> Message:
    """Replaces or removes one field of one tensor's entry."""
    entries = _entries_of(message)
    entry = entries[rng.integers(len(entries))]
    field = str(rng.choice(["name", "coding", "shape", "bits", "zero_point"]))
    if rng.random() < 0.2:
        entry.pop(field, None)
    else:
        entry[field] = JUNK[rng.integers(len(JUNK))]
    return refit(message, entries=entries)


def _shape(message: Message, rng: np.random.Generator) -> Message:
    """Gives one tensor another shape: turned, split, flattened, or with other lengths."""
    entries = _entries_of(message)
    entry = entries[rng.integers(len(entries))]
    shape = entry["shape"]
    forms = (
        shape[::-1], [*shape, 1], [1, *shape], [int(np.prod(shape))],
        [length + int(rng.integers(-2, 3)) for length in shape],
        [length * 2 for length in shape], [0] * len(shape), [2**31] * len(shape), [],
        [1] * 12 + shape,
    )
    entry["shape"] = forms[rng.integers(len(forms))]
    return refit(message, entries=entries)


def _coding(message: Message, rng: np.random.Generator) -> Message:
    """Gives one tensor's entry another coding."""
    entries = _entries_of(message)
    entry = entries[rng.integers(len(entries))]
    entry["coding"] = str(rng.choice([
        messages.FLOAT32, messages.FLOAT16, messages.BFLOAT16, messages.INT8_CHANNELS,
        messages.INT4_GROUPS, messages.INT3_GROUPS, messages.AFFINE, "float64", "",
    ]))
    if entry["coding"] == messages.AFFINE:
        entry["bits"] = int(rng.integers(-1, 40))
        entry["zero_point"] = int(rng.integers(-1, 300))
    return refit(message, entries=entries)


def _tensors(message: Message, rng: np.random.Generator) -> Message:
    """Leaves out, doubles, renames or moves a tensor, while the bytes stay."""
    entries = _entries_of(message)
    index = int(rng.integers(len(entries)))
    change = rng.integers(5)
    if change == 0:
        del entries[index]
    elif change == 1:
        entries.append(entries[index])
    elif change == 2:
        entries[index]["name"] = str(rng.choice(["", "linear_9.weight", "head", "a" * 1000]))
    elif change == 3:
        entries.insert(0, entries.pop(index))
    else:
        entries[index] = JUNK[rng.integers(len(JUNK))]
    return refit(message, entries=entries)


def _number(message: Message, rng: np.random.Generator) -> Message:
    """Writes NaN, infinity or a huge number over a float of the blob, of 4 or 2 bytes."""
    blob = message.blob.copy()
    number = _NUMBERS[str(rng.choice(list(_NUMBERS)))]
    dtype = np.float32 if rng.random() < 0.7 else np.float16
    with np.errstate(over="ignore"):
        written = np.frombuffer(np.asarray(number, dtype).tobytes(), np.uint8)
    if blob.size >= written.size:
        place = int(rng.integers(blob.size - written.size + 1)) // written.size * written.size
        blob[place : place + written.size] = written
    return refit(Message(message.header, blob))


def _field(name: str) -> Fault:
    def fault(message: Message, rng: np.random.Generator) -> Message:
        if rng.random() < 0.1:
            fields = json.loads(message.header.tobytes())
            del fields[name]
            return Message(messages.header_bytes(fields), message.blob)
        return refit(message, **{name: JUNK[rng.integers(len(JUNK))]})

    return fault


def _nested(message: Message, rng: np.random.Generator) -> Message:
    depth = int(rng.integers(10, 100_000))
    text = b"[" * depth if rng.random() < 0.5 else b'{"a":' * depth
    return Message(np.frombuffer(text, np.uint8), message.blob)


FAULTS: dict[str, Fault] = {
    "header truncated": lambda m, rng: Message(_truncated(m.header, rng), m.blob),
    "header too long": lambda m, rng: Message(_longer(m.header, rng), m.blob),
    "header with flipped bits": lambda m, rng: Message(_flipped(m.header, rng), m.blob),
    "header of random bytes": lambda m, rng: Message(_random(rng), m.blob),
    "header nested deeply": _nested,
    "header of another type": lambda m, rng: Message(_other_array(m.header, rng), m.blob),
    "blob truncated": lambda m, rng: Message(m.header, _truncated(m.blob, rng)),
    "blob truncated, checksum fits": lambda m, rng: refit(
        Message(m.header, _truncated(m.blob, rng))
    ),
    "blob too long": lambda m, rng: Message(m.header, _longer(m.blob, rng)),
    "blob too long, checksum fits": lambda m, rng: refit(Message(m.header, _longer(m.blob, rng))),
    "blob with flipped bits": lambda m, rng: Message(m.header, _flipped(m.blob, rng)),
    "blob with flipped bits, checksum fits": lambda m, rng: refit(
        Message(m.header, _flipped(m.blob, rng))
    ),
    "blob of random bytes, checksum fits": lambda m, rng: refit(Message(m.header, _random(rng))),
    "blob of another type": lambda m, rng: Message(m.header, _other_array(m.blob, rng)),
    "NaN, infinity or huge numbers": _number,
    "version": _field("version"),
    "scheme": _field("scheme"),
    "format": _field("format"),
    "size": _field("bytes"),
    "compression": _field("compressed"),
    "checksum": _field("checksum"),
    "list of tensors": _field("entries"),
    "tensor left out, doubled, renamed or moved": _tensors,
    "tensor's entry": _entry_field,
    "tensor's shape": _shape,
    "tensor's coding": _coding,
}
# These faults must be refused, whatever is drawn.
ALWAYS_REFUSED = (
    "header truncated", "header too long", "header with flipped bits", "header of random bytes",
    "header nested deeply", "header of another type", "blob truncated",
    "blob truncated, checksum fits", "blob too long", "blob too long, checksum fits",
    "blob with flipped bits", "blob of random bytes, checksum fits", "blob of another type",
    "format", "size", "checksum", "list of tensors",
)
