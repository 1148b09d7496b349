"""Shows what quantization does to a model's weights and biases.

    python -m baseline.visualize -f FOLDER -b 8

FOLDER may be a file or folder of any kind that `weight_files` reads. Draws the distributions
before and after (all together, and layer by layer) and appends their figures to OUT/output.txt.
"""

import os
import pathlib
import re
import sys
import time
from typing import NamedTuple

from absl import flags
import numpy as np

from actorQ.core import cli
from actorQ.core import errors
from actorQ.core import lean_imports
from actorQ.core import output
from actorQ.core import provenance
from actorQ.policy import quantization
from baseline.agents import weight_files
from baseline.quantization import names
from baseline.quantization import weight_statistics
from baseline.study import measuring_flags
from baseline.study import weight_plots

OUTPUT = "output.txt"
ALL_WEIGHTS = "all weights"
ALL_BIASES = "all biases"
_NAME_PARTS = 3  # Of a path, that tell models apart in names of files.
_NAME_WIDTH = 42
_COLUMNS = (
    f"{'tensor':{_NAME_WIDTH}} {'':6} {'numbers':>10} {'minimum':>11} {'maximum':>11} "
    f"{'range':>10} {'width':>10} {'distinct':>9} {'mean|err|':>10} {'max|err|':>10} "
    f"{'rel.RMS':>9} {'SQNR dB':>8}"
)


class Settings(NamedTuple):
    """How to quantize: names as the flags have them."""

    bits: str
    rounding: str
    granularity: str


class Result(NamedTuple):
    """What was made.

    Attributes:
      text: the block that was appended to the output file.
      paths: of the output file and the figures.
    """

    text: str
    paths: list[str]


def quantize(found: weight_files.WeightFile, settings: Settings) -> dict[str, np.ndarray]:
    """Returns the tensors as their quantized values, by the formulas that `ptq` uses.

    Kernels have a scale for the tensor, or for each output channel (convolutions, or all of them
    with granularity "channel"). Biases, which `ptq` leaves alone, have a scale for the tensor.
    """
    with lean_imports.without("tensorboard"):  # Which Stable-Baselines3 loads TensorFlow for.
        from baseline.quantization import schemes as quantize_lib

    scheme = quantize_lib.Scheme(
        settings.bits, granularity=settings.granularity, rounding=settings.rounding
    )
    after = {}
    for name, array in found.tensors.items():
        kernel = not weight_files.is_bias(name, array)
        by_channel = kernel and (array.ndim > 2 or settings.granularity == quantize_lib.CHANNEL)
        axis = found.channel_axis if kernel else 0
        channels_first = np.moveaxis(array, axis, 0)
        reals = quantize_lib.quantize_array(channels_first, scheme, by_channel).reals
        after[name] = np.moveaxis(reals, 0, axis)
    return after


def visualize(path: str, settings: Settings, out: str, part: str = weight_files.POLICY) -> Result:
    """Draws a model before and after quantization and appends the figures' numbers.

    Args:
      path: of the model.
      settings: how to quantize.
      out: folder for the figures and `output.txt`, made if missing.
      part: "policy" or "all", see `weight_files.read`.

    Raises:
      errors.UserError: the model cannot be read, or the results not be written.
    """
    found = weight_files.read(path, part)
    after = quantize(found, settings)
    changes = {
        name: weight_plots.Change(
            name, weight_statistics.flatten(array), weight_statistics.flatten(after[name])
        )
        for name, array in found.tensors.items()
    }
    wholes = [
        weight_plots.Change(
            label,
            *(weight_statistics.flatten({name: side[name] for name in names})
              for side in (found.tensors, after)),
        )
        for label, names in (
            (ALL_WEIGHTS, found.weights()), (ALL_BIASES, found.biases()),
        )
        if names
    ]  # fmt: skip
    text = _block(found, settings, wholes, changes)
    output.make_folder(out)
    # What is not the default is in the name, so that figures do not replace each other.
    defaults = (quantization.ROUNDINGS[0], names.GRANULARITIES[0], weight_files.POLICY)
    chosen = (settings.rounding, settings.granularity, part)
    marks = [c for c, default in zip(chosen, defaults, strict=True) if c != default]
    stem = os.path.join(out, "-".join([model_name(found.model), settings.bits, *marks]))
    title = f"{_shortened(found.path, 64)} ({found.kind})\n{_described(settings)}"
    paths = [
        weight_plots.draw_distribution(f"{stem}-distribution.png", title, wholes),
        weight_plots.draw_layers(f"{stem}-layers.png", title, _layers(found, changes)),
    ]
    path = os.path.join(out, OUTPUT)
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(text + "\n")
    except OSError as error:
        raise errors.UserError(f"Cannot write {path}: {error.strerror}.") from None
    return Result(text, [path, *paths])


def model_name(path: str) -> str:
    """Returns a name for files: the last parts of a model's path."""
    parts = pathlib.Path(path).resolve().parts[-_NAME_PARTS:]
    name = "-".join(part for part in parts if part.strip("/"))
    name = re.sub(r"\.(zip|pth|pt|safetensors|pb|pkl|index)$", "", name)
    return re.sub(r"[^\w.+-]+", "_", name) or "model"


def _layers(
    found: weight_files.WeightFile, changes: dict[str, weight_plots.Change]
) -> list[weight_plots.Layer]:
    """Puts each layer's weights and biases side by side, by their common name."""
    weights: dict[str, list[str]] = {}
    biases: dict[str, list[str]] = {}
    for name in found.tensors:
        side = biases if name in found.biases() else weights
        layer, last = _split(name)
        # Names without parts say nothing of layers.
        side.setdefault(layer or last, []).append(name)
    layers = []
    for layer in dict.fromkeys(_split(name)[0] or name for name in found.tensors):
        left, right = weights.get(layer, []), biases.get(layer, [])
        for index in range(max(len(left), len(right))):
            pair = (
                changes[side[index]]
                if index < len(side)
                else None
                for side in (left, right)
            )
            layers.append(weight_plots.Layer(layer, *pair))
    return layers


def _split(name: str) -> tuple[str, str]:
    layer, _, last = re.sub("[/.](?=[^/.]*$)", "\n", name).rpartition("\n")
    return layer, last


def _described(settings: Settings) -> str:
    if not settings.bits.isdecimal():
        return f"{settings.bits}, rounded to nearest"
    scales = {
        names.GRANULARITIES[0]: "a scale per tensor, per output channel of convolutions",
        names.GRANULARITIES[1]: "a scale per output channel",
    }[settings.granularity]
    return f"{settings.bits} bits, {scales}, rounding {settings.rounding}"


def _block(
    found: weight_files.WeightFile,
    settings: Settings,
    wholes: list[weight_plots.Change],
    changes: dict[str, weight_plots.Change],
) -> str:
    """Returns what is appended: what, when and from which commit, and the table."""
    lines = [
        "=" * len(_COLUMNS),
        f"{found.path} ({found.kind})",
        f"{_described(settings)}; biases, which ptq keeps in fp32: a scale per tensor",
        f"{time.strftime('%Y-%m-%d %H:%M:%S %Z')}, commit {provenance.git_commit()}",
        *found.notes,
        "width: of the central 99 %; rel.RMS: error / weights; SQNR: signal to quantization noise",
        "",
        _COLUMNS,
    ]
    for whole in wholes:
        lines += _rows(whole)
    for change in changes.values():
        lines += _rows(change)
    return "\n".join(lines) + "\n"


def _rows(change: weight_plots.Change) -> list[str]:
    rows = []
    for label, when, numbers in (
        (change.label, "before", change.before),
        ("", "after", change.after),
    ):
        figures = weight_statistics.statistics(numbers)
        rows.append(
            f"{_shortened(label, _NAME_WIDTH):{_NAME_WIDTH}} {when:6} {figures.count:>10,} "
            f"{figures.minimum:>11.5g} {figures.maximum:>11.5g} {figures.range:>10.5g} "
            f"{figures.width:>10.5g} {figures.distinct:>9,}"
        )
    error = weight_statistics.quantization_error(change.before, change.after)
    rows[-1] += (
        f" {error.mean_absolute:>10.3g} {error.max_absolute:>10.3g} {error.relative_rms:>9.3g} "
        f"{error.sqnr_db:>8.1f}"
    )
    return rows


def _shortened(text: str, length: int = 80) -> str:
    if len(text) <= length:
        return text
    end = text[1 - length :]
    return "…" + (end[end.index("/") :] if "/" in end else end)


def define_flags() -> None:
    """Defines the flags."""
    flags.DEFINE_string(
        "folder", None,
        "Model: an agent's folder or zip, an ActorQ run, a TensorFlow checkpoint or SavedModel, "
        "or a .pth, .pt, .safetensors, .pb or .pkl file.",
        short_name="f", required=True,
    )
    flags.DEFINE_string(
        "num_bits", None, "Width: 2 to 32, fp16 or bf16.", short_name="b", required=True
    )
    flags.DEFINE_string("out", "quantized/visualize", "Folder for figures and output.txt.")
    measuring_flags.define_quantizer()
    flags.DEFINE_enum(
        "part", weight_files.POLICY, list(weight_files.PARTS),
        "policy leaves critics and target networks out; all keeps them.",
    )


def main(argv: list[str]) -> None:
    """Draws, and prints the table and the paths."""
    del argv
    values = flags.FLAGS
    bits = parse_bits(values.num_bits)
    settings = Settings(bits, values.rounding, values.granularity)
    result = visualize(values.folder, settings, values.out, values.part)
    sys.stdout.write(result.text + "\n" + "\n".join(result.paths) + "\n")


def parse_bits(text: str) -> str:
    """Returns the name of a width, see `quantize.parse_bits`."""
    with lean_imports.without("tensorboard"):
        from baseline.quantization import schemes as quantize_lib
    return quantize_lib.parse_bits(text)


if __name__ == "__main__":
    define_flags()
    cli.run(main, name="visualize")
