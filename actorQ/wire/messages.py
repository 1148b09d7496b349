"""Model messages: named, typed tensors with a version, a scheme and a checksum; no pickle.

A message is two uint8 arrays:

- `header` is JSON: format, version, scheme, every tensor's name, coding and shape, and a checksum
  of all this and of the blob.
- `blob` holds the tensors' bytes one after another, little-endian and in C order.

Both hops use this format: learner to broadcaster with float weights, and broadcaster to actors with
weights in the actors' form. Imports numpy only.
"""

from collections.abc import Mapping
import json
import math
from typing import Any
import zlib

import numpy as np

from actorQ.core import errors
from actorQ.policy import model_update
from actorQ.policy import packing
from actorQ.policy import quantization

FORMAT = 3
MAX_HEADER_BYTES = 1 << 20
MAX_BLOB_BYTES = 1 << 31
MAX_AXES = 8
MAX_VERSION = 1 << 53  # A damaged version above this would make all later ones look old.

# Codings: how the numbers of one tensor are stored.
FLOAT32 = "float32"
FLOAT16 = "float16"
BFLOAT16 = "bfloat16"  # Upper halves of float32.
INT8_CHANNELS = "int8_channels"  # float32 scales [rows], then int8 values.
INT4_GROUPS = "int4_groups"  # bfloat16 scales [rows, groups], then int4 values plus 8, packed.
INT3_GROUPS = "int3_groups"  # The same with 3-bit values plus 4.
AFFINE = "affine"  # float32 scale [1], then unsigned integers packed to `bits` bits.

_GROUP_CODINGS = {4: INT4_GROUPS, 3: INT3_GROUPS}
_GROUP_BITS = {coding: bits for bits, coding in _GROUP_CODINGS.items()}
_FLOAT_DTYPES: dict[str, np.dtype[Any]] = {FLOAT32: np.dtype("<f4"), FLOAT16: np.dtype("<f2")}

# Units of the checksum.
_WORD = np.dtype("<u8")
_ROW_WORDS = 2048  # 16 KiB: a 34 MB message has as many rows as columns.
_BLOCK_ROWS = 32  # Half a MiB: the block stays in the cache between the two sums.


def encode(
    update: model_update.ModelUpdate, compress: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Turns an update into (header, blob), both uint8 [bytes].

    Args:
      update: The weights to send.
      compress: Whether to compress the blob without loss, with zlib at its fastest level.

    Raises:
      ValueError: A tensor holds NaN or infinity, or has a type that cannot be sent.
      errors.UserError: The tensors are too large for one message.
    """
    entries = []
    parts = []
    for name, tensor in update.tensors.items():
        entry, payload = _encode_tensor(tensor)
        if not _is_finite(tensor):
            raise ValueError(f"The weights {name!r} hold NaN or infinity.")
        entries.append({"name": name, **entry})
        parts.extend(payload)
    blob = np.concatenate(parts) if parts else np.zeros(0, np.uint8)
    if blob.size > MAX_BLOB_BYTES:
        raise errors.UserError(
            f"The policy's weights are {blob.size} bytes, and a message has {MAX_BLOB_BYTES} at "
            "most: choose a smaller --model_str."
        )
    header = {
        "format": FORMAT,
        "version": int(update.version),
        "scheme": update.scheme,
        "entries": entries,
        "bytes": blob.size,
        "compressed": bool(compress),
    }
    if compress:
        blob = np.frombuffer(zlib.compress(blob.data, 1), np.uint8)
    return header_bytes({**header, "checksum": checksum(header, blob)}), blob


def header_bytes(fields: Mapping[str, Any]) -> np.ndarray:
    """Returns the one header with these fields that `decode` takes, uint8 [bytes]."""
    return np.frombuffer(json.dumps(fields).encode(), np.uint8)


def checksum(fields: Mapping[str, Any], blob: np.ndarray) -> int:
    """Returns the checksum of a whole message.

    Args:
      fields: Fields of the header; a field "checksum" is left out.
      blob: uint8 [bytes], contiguous.
    """
    rest = {name: value for name, value in fields.items() if name != "checksum"}
    return bytes_checksum(header_bytes({**rest, "blob": bytes_checksum(blob)}))


def bytes_checksum(data: np.ndarray) -> int:
    """Returns a 32-bit checksum of bytes, as sharp as crc32 and several times faster.

    zlib.crc32 passes one byte after another through one register. The 34 MB of a 3x2048 policy in
    fp32 take it 10 to 35 ms, four times between learner and actor. Sums of whole machine words run
    at the speed of memory, and only these sums then go through crc32.

    The bytes form a table of 64-bit words, 2048 in a row. The words are added up (modulo 2^64)
    along every row and every column. The result is crc32 of these sums and of the bytes after the
    last whole row.

    Damage goes unnoticed in two cases:
    - The sums change, but crc32 misses it: one case in 2^32.
    - The sums stay as they were. This needs at least four wrong words, in two rows and two columns,
      that cancel each other. Flipped bits, any damage within 16 KiB and a wrong length never do.
      Nor do moved or swapped blocks, unless their rows have equal sums, as random data never has.

    Args:
      data: uint8 [bytes], contiguous.

    Returns:
      0 to 2^32 - 1.
    """
    row_bytes = _ROW_WORDS * _WORD.itemsize
    rows = data.size // row_bytes
    crc = zlib.crc32(data.size.to_bytes(8, "little"))
    if rows:
        words = data[: rows * row_bytes].view(_WORD).reshape(rows, _ROW_WORDS)
        row_sums = np.empty(rows, np.uint64)
        column_sums = np.zeros(_ROW_WORDS, np.uint64)
        for start in range(0, rows, _BLOCK_ROWS):
            block = words[start : start + _BLOCK_ROWS]
            block.sum(axis=1, dtype=np.uint64, out=row_sums[start : start + _BLOCK_ROWS])
            column_sums += block.sum(axis=0, dtype=np.uint64)
        crc = zlib.crc32(row_sums.astype(_WORD).data, crc)
        crc = zlib.crc32(column_sums.astype(_WORD).data, crc)
    return zlib.crc32(data[rows * row_bytes :].data, crc)


def decode(header: np.ndarray, blob: np.ndarray) -> model_update.ModelUpdate:
    """Undoes `encode`, and checks everything that was received.

    Float and int8 tensors are views of a `blob` that is not compressed, and are not copied.

    Raises:
      errors.MessageError: The message is damaged or has another format; the text says how.
    """
    fields = _decode_header(header)
    blob = np.ascontiguousarray(blob)
    _check_size(blob.size)
    if blob.dtype != np.uint8 or blob.ndim != 1:
        raise errors.MessageError(
            f"The model message's blob is {blob.dtype} {blob.shape}, expected uint8 [bytes]."
        )
    if checksum(fields, blob) != fields["checksum"]:
        raise errors.MessageError("The model message's checksum does not match its contents.")
    size = fields["bytes"]
    if fields["compressed"]:
        blob = _decompress(blob, size)
    if blob.size != size:
        raise errors.MessageError(
            f"The model message has {blob.size} bytes, its header says {size}."
        )
    tensors: dict[str, model_update.Tensor] = {}
    offset = 0
    for entry in fields["entries"]:
        tensor, offset = _decode_tensor(entry, blob, offset)
        if entry["name"] in tensors:
            raise errors.MessageError(f"The model message names {entry['name']!r} twice.")
        tensors[entry["name"]] = tensor
    if offset != size:
        raise errors.MessageError(
            f"The model message has {size - offset} bytes that belong to no tensor."
        )
    return model_update.ModelUpdate(fields["version"], fields["scheme"], tensors)


def check(
    update: model_update.ModelUpdate, shapes: Mapping[str, tuple[int, ...]], scheme: str
) -> None:
    """Checks that an update fits the receiver's model.

    Args:
      update: The update that arrived.
      shapes: Name to shape of every weight of the receiver's model.
      scheme: The scheme that the receiver computes with.

    Raises:
      errors.MessageError: It does not fit; the text names the first difference and the flag to set.
    """
    if update.scheme != scheme:
        raise errors.MessageError(
            f"The model message is for scheme {update.scheme!r}, this process uses {scheme!r}: "
            "start broadcaster and actors with the same --quantize."
        )
    missing = sorted(set(shapes) ^ set(update.tensors))
    if missing:
        raise errors.MessageError(
            f"The model message is of another model: {missing[0]!r} is on one side only. Start "
            "all processes with the same --taskstr, --algorithm and --model_str."
        )
    for name, shape in shapes.items():
        arrived = model_update.shape_of(update.tensors[name])
        if arrived != shape:
            raise errors.MessageError(
                f"The model message is of another model: {name!r} has shape {list(arrived)}, "
                f"this process expects {list(shape)}. Start all processes with the same "
                "--taskstr, --algorithm and --model_str."
            )


def fp32_bytes(update: model_update.ModelUpdate) -> int:
    """Returns the bytes that the same weights take as float32."""
    return sum(4 * model_update.stored_values(tensor).size for tensor in update.tensors.values())


def _is_finite(tensor: model_update.Tensor) -> bool:
    if isinstance(tensor, quantization.QuantizedTensor):
        return True  # The quantizers refuse other weights.
    # All bits of the exponent are set in NaN and infinity alone. Testing them is faster than
    # numpy's isfinite, which takes 16-bit numbers one at a time.
    if isinstance(tensor, model_update.Bfloat16):
        return bool(np.max(tensor.upper & np.uint16(0x7FFF), initial=0) < 0x7F80)
    if tensor.dtype == np.float16:
        return bool(np.max(tensor.view(np.uint16) & np.uint16(0x7FFF), initial=0) < 0x7C00)
    return bool(np.all(np.isfinite(tensor)))


def _encode_tensor(tensor: model_update.Tensor) -> tuple[dict[str, Any], list[np.ndarray]]:
    shape = list(model_update.shape_of(tensor))
    if isinstance(tensor, quantization.QuantizedTensor):
        if tensor.scale.ndim == 2:
            upper = quantization.to_bfloat16(tensor.scale).astype("<u2", copy=False)
            shifted = (tensor.values.reshape(-1) + _group_shift(tensor.bits)).view(np.uint8)
            parts = [upper.reshape(-1).view("u1"), packing.pack(shifted, tensor.bits)]
            return {"coding": _GROUP_CODINGS[tensor.bits], "shape": shape}, parts
        scale = np.ascontiguousarray(tensor.scale, "<f4").view(np.uint8)
        if tensor.values.dtype == np.int8:
            values = np.ascontiguousarray(tensor.values).reshape(-1).view(np.uint8)
            return {"coding": INT8_CHANNELS, "shape": shape}, [scale, values]
        values = packing.pack(tensor.values.reshape(-1), tensor.bits)
        entry = {
            "coding": AFFINE,
            "shape": shape,
            "bits": tensor.bits,
            "zero_point": tensor.zero_point,
        }
        return entry, [scale, values]
    if isinstance(tensor, model_update.Bfloat16):
        flat = np.ascontiguousarray(tensor.upper, "<u2").reshape(-1)
        return {"coding": BFLOAT16, "shape": shape}, [flat.view(np.uint8)]
    for coding, dtype in _FLOAT_DTYPES.items():
        if tensor.dtype == dtype:
            flat = np.ascontiguousarray(tensor, dtype).reshape(-1)
            return {"coding": coding, "shape": shape}, [flat.view(np.uint8)]
    raise ValueError(f"Cannot send a tensor of type {tensor.dtype}.")


def _group_shift(bits: int) -> np.int8:
    """Returns what makes integers of so many bits unsigned, when added to them."""
    return np.int8(2 ** (bits - 1))


def _decode_header(header: np.ndarray) -> dict[str, Any]:
    if header.dtype != np.uint8 or header.ndim != 1 or header.size > MAX_HEADER_BYTES:
        raise errors.MessageError(
            f"The model message's header is {header.dtype} {header.shape}, expected uint8 [bytes]."
        )
    try:
        fields = json.loads(header.tobytes())
        as_written = header_bytes(fields)
    except (ValueError, RecursionError) as error:  # An integer of too many digits: ValueError.
        raise errors.MessageError(f"The model message's header is not JSON: {error}.") from None
    number = fields.get("format") if isinstance(fields, dict) else None
    if number != FORMAT:
        raise errors.MessageError(
            f"The model message has format {number!r}, this program reads format {FORMAT}: run "
            "the same version everywhere."
        )
    types = {
        "version": int, "scheme": str, "entries": list, "bytes": int, "compressed": bool,
        "checksum": int,
    }
    for name, kind in types.items():
        if type(fields.get(name)) is not kind:
            raise errors.MessageError(f"The model message's header has a bad field {name!r}.")
    if not 0 <= fields["version"] <= MAX_VERSION or fields["bytes"] < 0:
        raise errors.MessageError("The model message's version or size is out of range.")
    _check_size(fields["bytes"])
    if not np.array_equal(header, as_written):
        raise errors.MessageError("The model message's header is not written as it must be.")
    return fields


def _check_size(size: int) -> None:
    if size > MAX_BLOB_BYTES:
        raise errors.MessageError(
            f"The model message has {size} bytes, more than the {MAX_BLOB_BYTES} that one may have."
        )


def _decompress(blob: np.ndarray, size: int) -> np.ndarray:
    decompressor = zlib.decompressobj()
    try:
        # A bomb is not inflated: one byte more than announced is enough to see that it is wrong.
        data = decompressor.decompress(blob.tobytes(), size + 1)
    except zlib.error as error:
        raise errors.MessageError(f"The model message cannot be decompressed: {error}.") from None
    if len(data) <= size and (not decompressor.eof or decompressor.unused_data):
        raise errors.MessageError("The model message's compressed data is not one whole stream.")
    return np.frombuffer(data, np.uint8)


def _decode_tensor(entry: Any, blob: np.ndarray, offset: int) -> tuple[model_update.Tensor, int]:
    try:
        name, coding, shape = entry["name"], entry["coding"], tuple(entry["shape"])
        if not isinstance(name, str) or not isinstance(coding, str):
            raise ValueError("name or coding")
        if len(shape) > MAX_AXES or any(type(s) is not int or s < 0 for s in shape):
            raise ValueError("shape")
        # Axes of length 0 count as 1: numpy refuses shapes that it could not address without them.
        if math.prod(max(length, 1) for length in shape) > 8 * MAX_BLOB_BYTES:
            raise ValueError("shape")
        if coding == AFFINE:
            bits, zero_point = entry["bits"], entry["zero_point"]
            if type(bits) is not int or type(zero_point) is not int:
                raise ValueError("bits or zero point")
            if not quantization.MIN_BITS <= bits <= quantization.MAX_BITS:
                raise ValueError(f"{bits} bits")
            if not 0 <= zero_point < 2**bits:
                raise ValueError(f"zero point {zero_point}")
    except (KeyError, TypeError, ValueError) as error:
        raise errors.MessageError(f"The model message has a bad entry: {error}.") from None
    count = math.prod(shape)

    def take(num_bytes: int) -> np.ndarray:
        nonlocal offset
        if offset + num_bytes > blob.size:
            raise errors.MessageError(f"The model message ends within the tensor {name!r}.")
        offset += num_bytes
        return blob[offset - num_bytes : offset]

    if coding in _FLOAT_DTYPES:
        dtype = _FLOAT_DTYPES[coding]
        tensor: model_update.Tensor = _view(take(count * dtype.itemsize), dtype).reshape(shape)
        _check_finite(name, tensor)
        return tensor, offset
    if coding == BFLOAT16:
        tensor = model_update.Bfloat16(_view(take(2 * count), np.dtype("<u2")).reshape(shape))
        _check_finite(name, tensor)
        return tensor, offset
    if coding == INT8_CHANNELS and shape:
        scale = _view(take(4 * shape[0]), np.dtype("<f4"))
        _check_scale(name, scale, 8)
        values = take(count).view(np.int8).reshape(shape)
        return quantization.QuantizedTensor(values, scale, 0, 8), offset
    if coding in _GROUP_BITS and len(shape) == 2:
        bits, groups = _GROUP_BITS[coding], quantization.num_groups(shape[1])
        upper = _view(take(2 * shape[0] * groups), np.dtype("<u2"))
        scale = quantization.from_bfloat16(upper).reshape(shape[0], groups)
        _check_scale(name, scale, bits)
        packed = take(packing.packed_bytes(count, bits))
        values = packing.unpack(packed, bits, count).view(np.int8) - _group_shift(bits)
        return quantization.QuantizedTensor(values.reshape(shape), scale, 0, bits), offset
    if coding == AFFINE:
        scale = _view(take(4), np.dtype("<f4"))
        _check_scale(name, scale, bits)
        packed = take(packing.packed_bytes(count, bits))
        values = packing.unpack(packed, bits, count).reshape(shape)
        return quantization.QuantizedTensor(values, scale, zero_point, bits), offset
    raise errors.MessageError(f"The model message has an unknown coding {coding!r} for {name!r}.")


def _view(data: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Views bytes as numbers; bytes that are not aligned for them are copied first."""
    if data.ctypes.data % dtype.itemsize:
        data = data.copy()
    return data.view(dtype)


def _check_scale(name: str, scale: np.ndarray, bits: int) -> None:
    _check_finite(name, scale)
    if np.max(np.abs(scale), initial=0) > np.finfo(np.float32).max / 2**bits:
        raise errors.MessageError(
            f"The model message's scales of {name!r} are so large that weights overflow."
        )


def _check_finite(name: str, numbers: model_update.Tensor) -> None:
    if not _is_finite(numbers):
        raise errors.MessageError(f"The model message holds NaN or infinity in {name!r}.")
