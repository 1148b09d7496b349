import re

from matplotlib import image as mpl_image
import numpy as np
import pytest
import torch

from actorQ.core import errors
from actorQ.policy import quantization
from baseline.agents import weight_files
from baseline.quantization import schemes
from baseline.study import weight_changes
from baseline.study import weight_plots

PAPER_8 = schemes.Scheme("8")


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def _weight_file(tensors, channel_axis=0):
    return weight_files.WeightFile("model", "model.pt", "test", tensors, channel_axis, ())


@pytest.fixture
def model(tmp_path, rng):
    """A state_dict with a convolution, a linear layer and one without bias."""
    tensors = {
        "cnn.0.weight": rng.normal(size=(4, 3, 2, 2)),
        "cnn.0.bias": rng.normal(size=4),
        "head.0.weight": rng.normal(size=(5, 16)),
        "head.0.bias": rng.normal(size=5),
        "last.weight": rng.normal(size=(2, 5)),
    }
    path = tmp_path / "agents" / "ppo" / "model.pt"
    path.parent.mkdir(parents=True)
    torch.save({name: torch.tensor(a, dtype=torch.float32) for name, a in tensors.items()}, path)
    return path


def _reference(array, bits):
    """The paper's formula, written once more, for one scale."""
    low, high = min(array.min(), 0.0), max(array.max(), 0.0)
    delta = np.float32((high - low) / 2**bits)
    zero = min(round(-low / delta), 2**bits - 1)
    levels = np.clip(np.round(array / delta) + zero, 0, 2**bits - 1)
    return (levels - zero) * delta


@pytest.mark.parametrize("granularity", ["paper", "channel"])
def test_quantize_uses_a_scale_per_tensor_or_channel(rng, granularity):
    tensors = {
        "conv.weight": rng.normal(size=(4, 3, 2, 2)).astype(np.float32),
        "linear.weight": rng.normal(size=(5, 7)).astype(np.float32),
        "linear.bias": rng.normal(size=5).astype(np.float32),
    }
    after = weight_changes.quantize(
        _weight_file(tensors), schemes.Scheme("5", granularity=granularity, rounding="nearest")
    )
    for channel in range(4):
        np.testing.assert_allclose(
            after["conv.weight"][channel], _reference(tensors["conv.weight"][channel], 5), rtol=1e-5
        )
    linear = tensors["linear.weight"]
    expected = (
        _reference(linear, 5)
        if granularity == "paper"
        else np.stack([_reference(row, 5) for row in linear])
    )
    np.testing.assert_allclose(after["linear.weight"], expected, rtol=1e-5)
    np.testing.assert_allclose(
        after["linear.bias"], _reference(tensors["linear.bias"], 5), rtol=1e-5
    )


@pytest.mark.parametrize("granularity", ["paper", "channel"])
def test_tensorflow_kernels_have_their_channels_last(rng, granularity):
    settings = schemes.Scheme("4", granularity=granularity, rounding="nearest")
    conv = rng.normal(size=(4, 3, 2, 2)).astype(np.float32)
    linear = rng.normal(size=(5, 7)).astype(np.float32)
    torch_after = weight_changes.quantize(
        _weight_file({"c.weight": conv, "l.weight": linear}), settings
    )
    kernels = {"c/w": conv.transpose(2, 3, 1, 0), "l/w": linear.T}
    tf_after = weight_changes.quantize(_weight_file(kernels, channel_axis=-1), settings)
    np.testing.assert_array_equal(tf_after["c/w"], torch_after["c.weight"].transpose(2, 3, 1, 0))
    np.testing.assert_array_equal(tf_after["l/w"], torch_after["l.weight"].T)


def test_quantize_to_halves_is_numpys_and_actorqs(rng):
    array = rng.normal(size=(3, 3)).astype(np.float32)
    found = _weight_file({"w": array})
    half = weight_changes.quantize(found, schemes.Scheme("fp16"))["w"]
    np.testing.assert_array_equal(half, array.astype(np.float16).astype(np.float32))
    brain = weight_changes.quantize(found, schemes.Scheme("bf16"))["w"]
    bits = quantization.to_bfloat16(array)
    np.testing.assert_array_equal(brain, quantization.from_bfloat16(bits))


def test_visualize_draws_and_appends(model, tmp_path):
    out = tmp_path / "new" / "out"
    first = weight_changes.visualize(str(model), PAPER_8, str(out))
    assert first[1] == [
        str(out / "output.txt"),
        str(out / "agents-ppo-model-8-distribution.png"),
        str(out / "agents-ppo-model-8-layers.png"),
    ]
    for path in first[1][1:]:
        pixels = mpl_image.imread(path)
        assert pixels.shape[0] > 300
        assert pixels.std() > 0.05  # The page is not blank.
    other = schemes.Scheme("2", granularity="channel", rounding="floor")
    second = weight_changes.visualize(str(model), other, str(out), "all")
    assert second[1][1].endswith("agents-ppo-model-2-floor-channel-all-distribution.png")
    text = (out / "output.txt").read_text()
    assert text == first[0] + "\n" + second[0] + "\n"


def test_table_has_the_figures_before_and_after(model, tmp_path):
    lines = weight_changes.visualize(str(model), PAPER_8, str(tmp_path / "out"))[0].splitlines()
    assert str(model) in lines[1]
    assert "8 bits" in lines[2]
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d .*commit [0-9a-f]{7,}", lines[3])
    start = next(number for number, line in enumerate(lines) if line.startswith("tensor"))
    labels = [line[:42].strip() for line in lines[start + 1 :: 2]]
    assert labels == [
        "all weights",
        "all biases",
        "cnn.0.weight",
        "cnn.0.bias",
        "head.0.weight",
        "head.0.bias",
        "last.weight",
    ]
    array = weight_files.read(model).tensors["head.0.weight"]
    row = next(number for number, line in enumerate(lines) if line.startswith("head.0.weight"))
    before, after = lines[row].split(), lines[row + 1].split()
    assert before[1:3] == ["before", "80"]
    assert float(before[3]) == pytest.approx(array.min(), rel=1e-3)
    assert float(before[4]) == pytest.approx(array.max(), rel=1e-3)
    assert float(before[5]) == pytest.approx(np.ptp(array), rel=1e-3)
    expected = _reference(array, 8)
    assert after[0] == "after"
    assert int(after[6]) == np.unique(expected).size
    error = np.abs(expected - array)
    assert float(after[7]) == pytest.approx(error.mean(), rel=0.01)
    assert float(after[8]) == pytest.approx(error.max(), rel=0.01)


def test_layers_pair_weights_and_biases_by_name():
    names = ["cnn.0.weight", "cnn.0.bias", "last.weight", "dense/w", "dense/b", "alone"]
    shapes = [(2, 2, 1, 1), (2,), (2, 2), (2, 2), (2,), (2, 2)]
    tensors = {name: np.ones(shape) for name, shape in zip(names, shapes, strict=True)}
    changes = {name: weight_plots.Change(name, a, a) for name, a in tensors.items()}
    layers = weight_changes._layers(_weight_file(tensors), changes)
    pairs = [
        (layer.weights and layer.weights.label, layer.biases and layer.biases.label)
        for layer in layers
    ]
    assert pairs == [
        ("cnn.0.weight", "cnn.0.bias"),
        ("last.weight", None),
        ("dense/w", "dense/b"),
        ("alone", None),
    ]


EXTREMES = {
    "zeros": np.zeros((3, 3)),
    "constant": np.full((3, 3), 0.5),
    "tiny": np.array([[1e-30, 2e-30]]),
    "huge": np.array([[3e38, -3e38]]),
    "one": np.array([[7.0]]),
    "many": np.linspace(-1, 1, 5000).reshape(2, -1),
}


@pytest.mark.parametrize("bits", ["2", "32", "bf16"])
@pytest.mark.filterwarnings("error::RuntimeWarning", "error::UserWarning")
def test_extreme_tensors_are_drawn(tmp_path, bits):
    tensors = {f"{n}.weight": torch.tensor(a, dtype=torch.float32) for n, a in EXTREMES.items()}
    torch.save(tensors, tmp_path / "a.pt")
    settings = schemes.Scheme(bits)
    result = weight_changes.visualize(str(tmp_path / "a.pt"), settings, str(tmp_path))
    assert len(result[1]) == 3
    assert "all biases" not in result[0]


def test_bins_hold_equally_many_levels_of_a_grid():
    levels = np.arange(-100, 101) * 0.25
    change = weight_plots.Change("", levels + 0.01, levels)
    edges = weight_plots._edges(change, np.unique(levels))
    counts = np.histogram(levels, edges)[0]
    assert counts.sum() == levels.size
    assert set(counts[:-1]) == {counts[0]}
    assert edges[0] <= change.before.min()
    assert edges[-1] >= change.before.max()


def test_nan_is_refused(tmp_path):
    torch.save({"w": torch.tensor([[float("nan")]])}, tmp_path / "a.pt")
    with pytest.raises(errors.UserError, match="NaN"):
        weight_changes.visualize(str(tmp_path / "a.pt"), PAPER_8, str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_output_that_cannot_be_written(model, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.UserError, match="Cannot make the folder"):
        weight_changes.visualize(str(model), PAPER_8, str(tmp_path / "file"))


def test_command_line(model, tmp_path, run_commands):
    (done,) = run_commands("visualize", [
        ["-f", model, "-b", "6", "--out", tmp_path / "out", "--rounding", "floor"],
    ])
    assert done.code == 0, done
    assert "6 bits" in done.out
    assert "rounding floor" in done.out
    assert (tmp_path / "out" / "output.txt").is_file()


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (("-b", "8"), "folder", 2),
        (("-f", "nowhere", "-b", "33"), "Cannot quantize to '33' bits", 1),
    ],
)
def test_command_line_mistakes_are_one_line(run_commands, arguments, message, code):
    (done,) = run_commands("visualize", [arguments])
    assert done.code == code, done
    assert message in done.err
    assert len(done.err.strip().splitlines()) == 1
