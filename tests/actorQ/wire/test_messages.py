"""Tests `actorQ.wire.messages`: round trips, sizes, and a MessageError for any damage."""

import json
import tracemalloc
import zlib

import numpy as np
import pytest

from actorQ.core import errors
from actorQ.policy import architecture as architecture_lib
from actorQ.policy import forms
from actorQ.policy import model_update
from actorQ.policy import quantization
from actorQ.wire import messages


def random_weights(sizes=(7, 5, 3), seed=0):
    """Returns weights and biases of linear layers in torch's names and layouts."""
    rng = np.random.default_rng(seed)
    weights = {}
    for index, (inputs, outputs) in enumerate(zip(sizes, sizes[1:], strict=False)):
        weights[f"linear_{index}.weight"] = rng.normal(size=(outputs, inputs)).astype(np.float32)
        weights[f"linear_{index}.bias"] = rng.normal(size=outputs).astype(np.float32)
    return weights


def make_update():
    """Returns one tensor of every coding. Their sizes are odd, so that nothing is aligned."""
    rng = np.random.default_rng(1)
    tensor = rng.normal(size=(3, 5)).astype(np.float32)
    return model_update.ModelUpdate(
        12,
        "int8",
        {
            "affine_3": quantization.quantize_affine(tensor, 3),
            "float32": tensor,
            "float16": tensor.astype(np.float16),
            "int8": quantization.quantize_int8_channels(tensor),
            "affine_13": quantization.quantize_affine(tensor, 13),
            "vector": tensor[0],
        },
    )


def assert_equal_tensors(got, expected):
    """Compares two updates bit for bit, types included."""
    assert type(got) is type(expected)
    if isinstance(expected, quantization.QuantizedTensor):
        assert got.bits == expected.bits
        assert got.zero_point == expected.zero_point
        assert got.scale.dtype == np.float32
        np.testing.assert_array_equal(got.scale, expected.scale)
        got, expected = got.values, expected.values
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    assert got.tobytes() == expected.tobytes()


def rebuild(header, blob, fix_checksum=True, **changes):
    """Returns the message with fields of the header replaced."""
    fields = json.loads(header.tobytes())
    for name, value in changes.items():
        if value is ...:
            del fields[name]
        else:
            fields[name] = value
    if fix_checksum and "checksum" not in changes:
        fields["checksum"] = messages.checksum(fields, blob)
    return np.frombuffer(json.dumps(fields).encode(), np.uint8), blob


def with_entry(index, **changes):
    """Returns `make_update`'s message with fields of one entry replaced (... removes one)."""
    header, blob = messages.encode(make_update())
    entries = json.loads(header.tobytes())["entries"]
    for name, value in changes.items():
        if value is ...:
            del entries[index][name]
        else:
            entries[index][name] = value
    return rebuild(header, blob, entries=entries)


@pytest.mark.parametrize("compress", [False, True])
def test_encode_then_decode_every_coding_is_bit_exact(compress):
    update = make_update()
    header, blob = messages.encode(update, compress)
    assert header.dtype == blob.dtype == np.uint8
    back = messages.decode(header, blob)
    assert (back.version, back.scheme) == (12, "int8")
    assert list(back.tensors) == list(update.tensors)
    for name, tensor in update.tensors.items():
        assert_equal_tensors(back.tensors[name], tensor)


@pytest.mark.parametrize("bits", range(2, 33))
def test_encode_then_decode_every_width_is_bit_exact(bits):
    tensor = np.random.default_rng(bits).normal(size=(3, 7)).astype(np.float32)
    quantized = quantization.quantize_affine(tensor, bits)
    update = model_update.ModelUpdate(0, "float32", {"w": quantized})
    back = messages.decode(*messages.encode(update))
    assert_equal_tensors(back.tensors["w"], quantized)


def test_encode_then_decode_odd_shapes_are_bit_exact():
    rng = np.random.default_rng(0)
    tensors = {
        "scalar": np.float32(rng.normal(size=())),
        "empty": np.zeros((0, 3), np.float32),
        "transposed": rng.normal(size=(4, 3)).astype(np.float32).T,
        "strided": rng.normal(size=(4, 6)).astype(np.float16)[::2, 1::2],
        "extreme": np.array([-0.0, 1e-45, 3.4028235e38], np.float32),
        "": np.ones(1, np.float32),
        "naïve \"name\"\n": np.ones(1, np.float32),
    }
    tensors["scalar"] = np.asarray(tensors["scalar"])
    back = messages.decode(*messages.encode(model_update.ModelUpdate(0, "float32", tensors)))
    for name, tensor in tensors.items():
        assert_equal_tensors(back.tensors[name], tensor)


def test_encode_without_tensors_round_trips():
    for compress in (False, True):
        update = model_update.ModelUpdate(3, "float32", {})
        assert messages.decode(*messages.encode(update, compress)) == update


def test_encode_header_is_the_documented_json():
    header, blob = messages.encode(make_update())
    fields = json.loads(header.tobytes())
    assert fields["format"] == 3
    assert fields["bytes"] == blob.size
    rest = {name: value for name, value in fields.items() if name != "checksum"}
    sealed = json.dumps({**rest, "blob": messages.bytes_checksum(blob)}).encode()
    assert fields["checksum"] == messages.bytes_checksum(np.frombuffer(sealed, np.uint8))
    # 15 values each take 4 + 3 * 2 (planes), 60, 30, 3 * 4 + 15 and 4 + 13 * 2 bytes, and 5 floats.
    assert blob.size == 10 + 60 + 30 + 27 + 30 + 20
    assert [entry["coding"] for entry in fields["entries"]] == [
        "affine", "float32", "float16", "int8_channels", "affine", "float32",
    ]


def test_decode_big_float_tensor_is_a_view_of_the_message():
    weights = {"w": np.arange(1000, dtype=np.float32)}
    header, blob = messages.encode(model_update.ModelUpdate(0, "float32", weights))
    assert np.shares_memory(messages.decode(header, blob).tensors["w"], blob)


def test_what_no_message_may_hold_is_not_sent_and_is_told_by_its_size(monkeypatch):
    update = model_update.ModelUpdate(0, "float32", {"w": np.zeros(8, np.float32)})
    message = messages.encode(update)
    monkeypatch.setattr(messages, "MAX_BLOB_BYTES", 31)
    with pytest.raises(errors.UserError, match="32 bytes, and a message has 31 at most"):
        messages.encode(update)
    for said in ({}, {"bytes": 31}):
        with pytest.raises(errors.MessageError, match="32 bytes, more than the 31"):
            messages.decode(*rebuild(*message, **said))


def bfloat16_of(numbers):
    """Rounds with TensorFlow, which is an independent implementation."""
    tensorflow = pytest.importorskip("tensorflow")
    return np.asarray(tensorflow.cast(numbers, tensorflow.bfloat16))


def test_encode_bfloat16_arrives_in_half_the_bytes():
    numbers = np.random.default_rng(0).normal(size=(30, 50)).astype(np.float32)
    rounded = bfloat16_of(numbers)
    update = model_update.ModelUpdate(4, "x", {"w": model_update.Bfloat16(rounded.view(np.uint16))})
    assert messages.fp32_bytes(update) == numbers.nbytes
    header, blob = messages.encode(update)
    assert blob.size == numbers.nbytes / 2
    (arrived,) = messages.decode(header, blob).tensors.values()
    assert isinstance(arrived, model_update.Bfloat16)
    assert_equal_tensors(model_update.to_float32(arrived), rounded.astype(np.float32))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_encode_bfloat16_not_finite_raises_and_is_refused(bad):
    numbers = bfloat16_of(np.array([3.3e38, bad], np.float32)).view(np.uint16)
    with pytest.raises(ValueError, match="w.*NaN or infinity"):
        messages.encode(model_update.ModelUpdate(0, "x", {"w": model_update.Bfloat16(numbers)}))
    fine = model_update.Bfloat16(numbers[[0, 0]])
    header, blob = messages.encode(model_update.ModelUpdate(0, "x", {"w": fine}))
    with pytest.raises(errors.MessageError, match="NaN or infinity in 'w'"):
        messages.decode(*rebuild(header, numbers.view(np.uint8)))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_encode_number_not_finite_raises(bad):
    tensors = {"linear_3.bias": np.array([1.0, bad], np.float32)}
    with pytest.raises(ValueError, match="linear_3.bias.*NaN or infinity"):
        messages.encode(model_update.ModelUpdate(0, "float32", tensors))


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.uint8, object])
def test_encode_type_without_coding_raises(dtype):
    tensors = {"w": np.ones(2, dtype)}
    with pytest.raises(ValueError, match="Cannot send a tensor of type"):
        messages.encode(model_update.ModelUpdate(0, "float32", tensors))


@pytest.fixture(scope="module")
def wide_weights():
    """Returns the papers' policy, four times narrower: 3 x 512 units."""
    architecture = architecture_lib.PolicyArchitecture((24,), (512, 512, 512), 6, "tanh")
    rng = np.random.default_rng(0)
    return {
        name: rng.normal(size=shape).astype(np.float32)
        for name, shape in architecture.parameter_shapes.items()
    }


@pytest.mark.parametrize(
    ("quantize", "communication", "least", "most"),
    [(32, 32, 1.0, 1.005), (16, 32, 0.5, 0.51), (8, 32, 0.25, 0.26), (32, 16, 0.5, 0.51),
     (32, 8, 0.25, 0.26), (8, 4, 0.125, 0.135), (32, 4, 0.125, 0.135), (8, 2, 0.0625, 0.072),
     (4, 32, 4.25 / 32, 0.138), (3, 32, 3.25 / 32, 0.107), (3, 2, 0.0625, 0.072)],
)
def test_encode_message_size_follows_the_width(wide_weights, quantize, communication, least, most):
    update = forms.to_actor_form(wide_weights, 1, quantize, communication)
    header, blob = messages.encode(update)
    fp32 = sum(array.nbytes for array in wide_weights.values())
    assert messages.fp32_bytes(update) == fp32
    assert least <= (header.size + blob.size) / fp32 <= most


def test_encode_3_bit_message_of_a_small_policy_is_about_three_quarters_of_int4s():
    architecture = architecture_lib.PolicyArchitecture((17,), (256, 256, 256), 6, "tanh")
    rng = np.random.default_rng(0)
    weights = {
        name: rng.normal(size=shape).astype(np.float32)
        for name, shape in architecture.parameter_shapes.items()
    }
    sizes = {
        bits: sum(part.size for part in messages.encode(forms.to_actor_form(weights, 1, bits)))
        for bits in (4, 3)
    }
    # Scales of 16 bits, biases and the head stay: 3.25 bits in the place of 4.25.
    assert 0.75 < sizes[3] / sizes[4] < 0.79


def group_message(bits, shape=(7, 65)):
    """Returns a message with one tensor in groups, and the tensor."""
    tensor = np.random.default_rng(bits).normal(size=shape).astype(np.float32)
    quantized = quantization.quantize_int4_groups(tensor, bits)
    update = model_update.ModelUpdate(3, f"int{bits}", {"linear_0.weight": quantized})
    return messages.encode(update), quantized


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("bits", [4, 3])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (7, 65), (2, 200)])
def test_encode_then_decode_groups_are_bit_exact(shape, bits, compress):
    _, quantized = group_message(bits, shape)
    update = model_update.ModelUpdate(3, f"int{bits}", {"w": quantized})
    back = messages.decode(*messages.encode(update, compress))
    assert back.scheme == f"int{bits}"
    assert_equal_tensors(back.tensors["w"], quantized)


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (7, 65), (2, 200)])
def test_encode_3_bit_groups_lie_as_the_page_says(shape):
    (header, blob), quantized = group_message(3, shape)
    (entry,) = json.loads(header.tobytes())["entries"]
    assert entry == {"name": "linear_0.weight", "coding": "int3_groups", "shape": list(shape)}
    count, scales = quantized.values.size, quantized.scale.size
    assert blob.size == 2 * scales + 3 * -(-count // 8)
    upper = blob[: 2 * scales].view("<u2").astype(np.uint32) << 16
    np.testing.assert_array_equal(upper.view(np.float32), quantized.scale.reshape(-1))
    planes = np.unpackbits(blob[2 * scales :].reshape(3, -1), axis=1)[:, :count].astype(int)
    values = 4 * planes[0] + 2 * planes[1] + planes[2] - 4
    np.testing.assert_array_equal(values, quantized.values.reshape(-1))


@pytest.mark.parametrize("bits", [4, 3])
def test_decode_damaged_groups_are_refused(bits):
    (header, blob), quantized = group_message(bits)
    for place in range(blob.size):
        damaged = blob.copy()
        damaged[place] ^= 0x10
        with pytest.raises(errors.MessageError, match="checksum"):
            messages.decode(header, damaged)
    for end in range(blob.size):  # They are refused even with a checksum that fits.
        with pytest.raises(errors.MessageError, match="ends within the tensor"):
            messages.decode(*rebuild(header, blob[:end], bytes=end))
    longer = np.append(blob, np.uint8(0))
    with pytest.raises(errors.MessageError, match="1 bytes that belong to no tensor"):
        messages.decode(*rebuild(header, longer, bytes=longer.size))
    (entry,) = json.loads(header.tobytes())["entries"]
    other = {4: "int3_groups", 3: "int4_groups"}[bits]
    for changes in ({"coding": other}, {"shape": [7 * 65]}, {"shape": [7, 5, 13]},
                    {"shape": [8, 65]}, {"shape": [7, 60]}, {"coding": "int5_groups"}):
        with pytest.raises(errors.MessageError):
            messages.decode(*rebuild(header, blob, entries=[{**entry, **changes}]))
    for number, said in ((np.nan, "NaN or infinity"), (np.inf, "NaN or infinity"),
                         (3e38, "so large that weights overflow")):
        damaged = blob.copy()
        damaged[2:4] = np.frombuffer(np.float32(number).tobytes()[2:], np.uint8)
        with pytest.raises(errors.MessageError, match=said):
            messages.decode(*rebuild(header, damaged))


def test_check_3_bit_message_for_4_bit_actors_names_both_and_the_flag():
    message, quantized = group_message(3)
    update, shapes = messages.decode(*message), {"linear_0.weight": quantized.values.shape}
    assert messages.check(update, shapes, "int3") is None
    with pytest.raises(errors.MessageError, match="'int3', this process uses 'int4'.*--quantize"):
        messages.check(update, shapes, "int4")


def test_encode_weight_compress_makes_biases_bytes_too(wide_weights):
    sizes = {}
    for weight_compress in (False, True):
        update = forms.to_actor_form(wide_weights, 1, 32, 32, weight_compress)
        sizes[weight_compress] = messages.encode(update)[1].size
    numbers = sum(array.size for array in wide_weights.values())
    assert sizes[False] == 4 * numbers
    assert sizes[True] == numbers + 4 * len(wide_weights)


def test_encode_compress_shrinks_what_can_be_compressed(wide_weights):
    sparse = {name: np.where(w > 1.5, w, 0).astype(np.float32) for name, w in wide_weights.items()}
    update = model_update.ModelUpdate(5, "float32", sparse)
    plain = messages.encode(update)[1]
    header, compressed = messages.encode(update, compress=True)
    assert compressed.size < 0.5 * plain.size
    back = messages.decode(header, compressed)
    for name, array in sparse.items():
        assert_equal_tensors(back.tensors[name], array)


@pytest.mark.parametrize("compress", [False, True])
def test_decode_truncated_message_is_refused_everywhere(compress):
    header, blob = messages.encode(make_update(), compress)
    for end in range(blob.size):
        with pytest.raises(errors.MessageError, match="checksum"):
            messages.decode(header, blob[:end])
        # It is refused even with a checksum that fits.
        with pytest.raises(errors.MessageError):
            messages.decode(*rebuild(header, blob[:end]))
    for end in range(header.size):
        with pytest.raises(errors.MessageError):
            messages.decode(header[:end], blob)


def test_decode_any_flipped_byte_is_refused():
    header, blob = messages.encode(make_update())
    for place in range(blob.size):
        damaged = blob.copy()
        damaged[place] ^= 0x40
        with pytest.raises(errors.MessageError, match="checksum"):
            messages.decode(header, damaged)


def test_decode_any_damage_of_the_header_is_refused():
    header, blob = messages.encode(make_update())
    for place in range(header.size):
        for bit in range(8):  # Each bit is part of a version, a name, a zero point or a space.
            damaged = header.copy()
            damaged[place] ^= np.uint8(1 << bit)
            with pytest.raises(errors.MessageError):
                messages.decode(damaged, blob)
    with pytest.raises(errors.MessageError, match="not written as it must be"):
        messages.decode(np.append(header, np.uint8(ord(" "))), blob)


@pytest.mark.parametrize("version", [2**53 + 1, 2**63, 10**40])
def test_decode_version_that_would_make_all_others_old_is_refused(version):
    message = rebuild(*messages.encode(make_update()), version=version)
    with pytest.raises(errors.MessageError, match="out of range"):
        messages.decode(*message)


@pytest.mark.parametrize("number", [0, 1, 2, "3", None, ..., [1]])
def test_decode_other_format_names_both(number):
    message = rebuild(*messages.encode(make_update()), format=number)
    with pytest.raises(errors.MessageError, match="format.*this program reads format 3"):
        messages.decode(*message)


@pytest.mark.parametrize(
    "name", ["version", "scheme", "entries", "bytes", "compressed", "checksum"]
)
@pytest.mark.parametrize("value", [..., None, 1.5, "x", [], {}, True, -1])
def test_decode_header_field_missing_or_of_other_type_is_refused(name, value):
    legal = {"scheme": "x", "entries": [], "compressed": True}
    message = rebuild(*messages.encode(make_update()), **{name: value})
    if name == "scheme" and value == legal["scheme"]:
        assert messages.decode(*message).scheme == "x"
        return
    with pytest.raises(errors.MessageError):
        messages.decode(*message)


@pytest.mark.parametrize(
    "content", [b"", b"\x00", b"\xff\xfe", b"{", b"[]", b"3", b"null", b"NaN", b"[" * 100_000,
                b'{"format": 3}', b'{"format": 3, "version": ' + b"9" * 5000 + b"}"]
)
def test_decode_header_that_is_no_header_is_refused(content):
    with pytest.raises(errors.MessageError):
        messages.decode(np.frombuffer(content, np.uint8), np.zeros(0, np.uint8))


def test_decode_arrays_of_other_types_are_refused():
    header, blob = messages.encode(make_update())
    for bad in (header.astype(np.int8), header[None], header.astype(np.float32)):
        with pytest.raises(errors.MessageError, match="header is"):
            messages.decode(bad, blob)
    for bad in (blob.view(np.int8), blob[None], blob.astype(np.float64)):
        with pytest.raises(errors.MessageError, match="blob is"):
            messages.decode(header, bad)


def test_decode_header_too_long_is_refused_unread():
    header = np.full(messages.MAX_HEADER_BYTES + 1, ord(" "), np.uint8)
    with pytest.raises(errors.MessageError, match="header is"):
        messages.decode(header, np.zeros(0, np.uint8))


def test_decode_extra_bytes_are_refused():
    header, blob = messages.encode(make_update())
    longer = np.append(blob, np.uint8(0))
    with pytest.raises(errors.MessageError, match=f"{longer.size} bytes.*says {blob.size}"):
        messages.decode(*rebuild(header, longer))
    with pytest.raises(errors.MessageError, match="1 bytes that belong to no tensor"):
        messages.decode(*rebuild(header, longer, bytes=longer.size))


@pytest.mark.parametrize("name", ["name", "coding", "shape", "bits", "zero_point"])
def test_decode_entry_without_a_field_is_refused(name):
    with pytest.raises(errors.MessageError, match="bad entry"):
        messages.decode(*with_entry(0, **{name: ...}))


JUNK = [None, True, 1.5, -1, 10**30, "x", "float32", [], [[]], {}, {"a": 1}]


@pytest.mark.parametrize("index", [0, 1, 3])
@pytest.mark.parametrize("name", ["name", "coding", "shape", "bits", "zero_point"])
@pytest.mark.parametrize("value", JUNK)
def test_decode_entry_field_of_other_type_is_refused(index, name, value):
    read = index == 0 or name in ("name", "coding", "shape")
    fits = name == "name" and isinstance(value, str) and value != "float32"
    fits |= index == 1 and name in ("name", "coding") and value == "float32"
    if fits or not read:
        assert len(messages.decode(*with_entry(index, **{name: value})).tensors) == 6
        return
    with pytest.raises(errors.MessageError):
        messages.decode(*with_entry(index, **{name: value}))


@pytest.mark.parametrize("entry", [None, 3, "x", [], ["name", "coding", "shape"], {}])
def test_decode_entry_that_is_no_object_is_refused(entry):
    header, blob = messages.encode(make_update())
    entries = json.loads(header.tobytes())["entries"]
    for changed in ([entry, *entries], [*entries, entry], [entry]):
        with pytest.raises(errors.MessageError, match="bad entry"):
            messages.decode(*rebuild(header, blob, entries=changed))


@pytest.mark.parametrize(
    "shape",
    [[-3, -5], [3, -5], [-1], [2, 4], [3, 5, 2], [10**9, 10**9], [2**63], [10**30, 0],
     [0, 10**30], [0, 2**31, 2**31, 2**31], [1] * 40 + [15], [3.0, 5], [True, 15], "35", 15,
     [[3, 5]]],
)
@pytest.mark.parametrize("index", [0, 1, 2, 3])
def test_decode_shape_that_cannot_be_is_refused(index, shape):
    with pytest.raises(errors.MessageError):
        messages.decode(*with_entry(index, shape=shape))


@pytest.mark.parametrize("bits", [1, 0, -3, 33, 40, 4, 2**70])
def test_decode_width_that_cannot_be_is_refused(bits):
    with pytest.raises(errors.MessageError):
        messages.decode(*with_entry(0, bits=bits))


@pytest.mark.parametrize("zero_point", [-1, 8, 2**40])
def test_decode_zero_point_out_of_range_is_refused(zero_point):
    with pytest.raises(errors.MessageError, match="zero point"):
        messages.decode(*with_entry(0, zero_point=zero_point))


def test_decode_unknown_coding_is_named():
    with pytest.raises(errors.MessageError, match="unknown coding 'float8' for 'float32'"):
        messages.decode(*with_entry(1, coding="float8"))


def test_decode_name_twice_is_refused():
    with pytest.raises(errors.MessageError, match="'affine_3' twice"):
        messages.decode(*with_entry(1, name="affine_3"))


@pytest.mark.parametrize(("offset", "name"), [(0, "affine_3"), (10, "float32"), (100, "int8"),
                                              (127, "affine_13"), (137 + 40, "vector")])
def test_decode_nan_under_a_right_checksum_names_the_tensor(offset, name):
    header, blob = messages.encode(make_update())
    # The blob has parts of 10, 60, 30, 27, 30 and 20 bytes; the last float begins at 173.
    offset = 173 if name == "vector" else offset
    for bad in (np.nan, np.inf):
        damaged = blob.copy()
        damaged[offset : offset + 4] = np.frombuffer(np.float32(bad).tobytes(), np.uint8)
        with pytest.raises(errors.MessageError, match=f"NaN or infinity in '{name}'"):
            messages.decode(*rebuild(header, damaged))


def test_decode_nan_in_fp16_names_the_tensor():
    header, blob = messages.encode(make_update())
    damaged = blob.copy()
    damaged[70:72] = np.frombuffer(np.float16(np.inf).tobytes(), np.uint8)
    with pytest.raises(errors.MessageError, match="NaN or infinity in 'float16'"):
        messages.decode(*rebuild(header, damaged))


def test_decode_zip_bomb_is_refused_without_inflating_it():
    header, _ = messages.encode(make_update(), compress=True)
    bomb = np.frombuffer(zlib.compress(bytes(20_000_000), 9), np.uint8)
    message = rebuild(header, bomb)
    tracemalloc.start()
    try:
        with pytest.raises(errors.MessageError, match="178 bytes, its header says 177"):
            messages.decode(*message)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


def test_decode_compressed_garbage_under_a_right_checksum_is_refused():
    header, _ = messages.encode(make_update(), compress=True)
    garbage = np.arange(100, dtype=np.uint8)
    with pytest.raises(errors.MessageError, match="cannot be decompressed"):
        messages.decode(*rebuild(header, garbage))
    header, blob = messages.encode(make_update(), compress=True)
    with pytest.raises(errors.MessageError, match="not one whole stream"):
        messages.decode(*rebuild(header, np.append(blob, np.uint8(0))))


def sealed(fields, blob):
    """Returns a header with these fields, and with a fitting checksum if there can be one."""
    if isinstance(fields, dict) and "checksum" in fields:
        fields["checksum"] = messages.checksum(fields, np.frombuffer(blob, np.uint8))
    return json.dumps(fields).encode()


def mutate_bytes(rng, data):
    """Flips, inserts, deletes or repeats a few bytes."""
    data = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        place = int(rng.integers(len(data) + 1))
        what = rng.integers(4)
        if what == 0 and place < len(data):
            data[place] = rng.integers(256)
        elif what == 1:
            data[place:place] = rng.bytes(int(rng.integers(1, 9)))
        elif what == 2:
            del data[place : place + int(rng.integers(1, 9))]
        else:
            data[place:place] = data[place : place + 20]
    return bytes(data)


def mutate_json(rng, fields):
    """Replaces or removes one value anywhere in the header."""
    junk = [
        None, True, False, 0, 1, -1, 2, 7, 33, 2**31, 2**63, 10**30, 0.5, 1e999, "", "affine",
        "float16", "int8_channels", [], [0], [3, 5], [0, 2**62], [2**62, 0], [1] * 70, {}, [{}],
        [None], "\ud800",
    ]
    target = fields
    while True:
        keys = list(target) if isinstance(target, dict) else list(range(len(target)))
        if not keys:
            return fields
        key = keys[rng.integers(len(keys))]
        if isinstance(target[key], (dict, list)) and rng.random() < 0.85:
            target = target[key]
            continue
        if rng.random() < 0.1:
            del target[key]
        else:
            target[key] = junk[rng.integers(len(junk))]
        return fields


@pytest.mark.parametrize("compress", [False, True])
def test_decode_random_damage_is_decoded_or_a_message_error(compress):
    header, blob = messages.encode(make_update(), compress)
    rng = np.random.default_rng(3)
    refused = 0
    for round_number in range(1500):
        new_header, new_blob = header.tobytes(), blob.tobytes()
        kind = round_number % 3
        if kind == 0:
            new_header = mutate_bytes(rng, new_header)
        elif kind == 1:
            fields = json.loads(new_header)
            for _ in range(rng.integers(1, 3)):
                fields = mutate_json(rng, fields)
            new_header = sealed(fields, new_blob)
        else:  # The checksum fits the damaged message.
            new_blob = mutate_bytes(rng, new_blob)
            new_header = sealed(json.loads(new_header), new_blob)
        try:
            update = messages.decode(
                np.frombuffer(new_header, np.uint8), np.frombuffer(new_blob, np.uint8)
            )
        except errors.MessageError:
            refused += 1
            continue
        # An update that is let through can be used.
        for tensor in update.tensors.values():
            assert model_update.to_float32(tensor).shape == model_update.shape_of(tensor)
    assert 750 < refused < 1500


def shapes_of(weights):
    return {name: array.shape for name, array in weights.items()}


def test_check_update_that_fits_passes():
    weights = random_weights()
    for quantize, scheme in ((32, "float32"), (16, "float16"), (8, "int8")):
        update = forms.to_actor_form(weights, 1, quantize, 3)
        assert messages.check(update, shapes_of(weights), scheme) is None


def test_check_other_scheme_names_both_and_the_flag():
    weights = random_weights()
    update = forms.to_actor_form(weights, 1, 8)
    with pytest.raises(errors.MessageError, match="'int8', this process uses 'float16'.*quantize"):
        messages.check(update, shapes_of(weights), "float16")


def test_check_other_depth_names_the_layer_and_the_flags():
    update = model_update.ModelUpdate(1, "float32", random_weights((7, 5, 3)))
    for sizes, name in (((7, 5), "linear_1.bias"), ((7, 5, 3, 2), "linear_2.bias")):
        with pytest.raises(errors.MessageError, match=f"'{name}' is on one side.*--model_str"):
            messages.check(update, shapes_of(random_weights(sizes)), "float32")


def test_check_other_width_names_both_shapes():
    update = model_update.ModelUpdate(1, "float32", random_weights((7, 5, 3)))
    expected = r"'linear_0.weight' has shape \[5, 7\], this process expects \[5, 8\].*--taskstr"
    with pytest.raises(errors.MessageError, match=expected):
        messages.check(update, shapes_of(random_weights((8, 5, 3))), "float32")
