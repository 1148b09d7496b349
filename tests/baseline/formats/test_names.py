import pytest

from actorQ.core import errors
from baseline.formats import names as formats

BOTH, WEIGHTS = "weights+activations", "weights"


@pytest.mark.parametrize(
    ("file_format", "bits", "asked", "expected"),
    [
        ("onnx", 8, None, BOTH), ("onnx", 8, WEIGHTS, WEIGHTS), ("onnx", 32, None, WEIGHTS),
        ("onnx", 16, WEIGHTS, WEIGHTS), ("tflite", 8, None, BOTH), ("tflite", 2, BOTH, BOTH),
        ("torchscript", 8, None, WEIGHTS), ("torchscript", 32, None, WEIGHTS),
        ("native", 4, None, WEIGHTS), ("native", 3, None, WEIGHTS), ("native", 16, None, WEIGHTS),
    ],
)
def test_scheme_is_what_suits_the_format(file_format, bits, asked, expected):
    assert formats.scheme(file_format, bits, asked) == expected


@pytest.mark.parametrize(
    ("file_format", "bits", "asked", "message"),
    [
        ("onnx", 7, None, r"no onnx file of 7 bits. Possible are onnx: 32, 16, 8, 4; tflite: 32"),
        ("torchscript", 4, None, r"no torchscript file of 4 bits.*torchscript: 32, 8"),
        ("tflite", 16, None, "no tflite file of 16 bits"),
        ("tflite", 8, WEIGHTS, r"possible with --format=onnx or torchscript or native"),
        ("torchscript", 8, BOTH, r"possible with --format=onnx or tflite"),
        ("native", 8, BOTH, r"--scheme=weights only; weights.activations is possible with"),
        ("native", 7, None, r"no native file of 7 bits.*native: 32, 16, 8, 4, 3;"),
        ("onnx", 32, BOTH, "Activations stay in fp32 where weights have 32 bits"),
    ],
)
def test_impossible_files_are_refused_and_possible_ones_told(file_format, bits, asked, message):
    with pytest.raises(errors.UserError, match=message):
        formats.scheme(file_format, bits, asked)


@pytest.mark.parametrize(("bits", "kernels"), [(8, "micro"), (8, "exact"), (3, "exact")])
def test_kernels_of_tflite_files(bits, kernels):
    formats.check_kernels("tflite", bits, kernels)
    with pytest.raises(errors.UserError, match="micro is for 8 bits: .* 3 bits has --tflite_k"):
        formats.check_kernels("tflite", 3, "micro")
    formats.check_kernels("onnx", 4, "micro")  # The flag does not concern it.


def test_the_kernels_of_native_files_decide_which_weights_share_a_scale():
    assert formats.granularities("native") == ("channel",)
    assert formats.granularity("native", "paper") == "channel"
    assert formats.granularity("onnx", "paper") == "paper"
