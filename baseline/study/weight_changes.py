"""Shows how quantization changes a model's tensors: figures, and a table in a text file."""

import itertools
import os
import pathlib
import re
import time

import numpy as np

from actorQ.core import errors
from actorQ.core import output
from actorQ.core import provenance
from baseline.agents import weight_files
from baseline.quantization import names
from baseline.quantization import schemes
from baseline.quantization import weight_statistics
from baseline.study import rows as rows_lib
from baseline.study import weight_plots

OUTPUT = "output.txt"
ALL_WEIGHTS = "all weights"
ALL_BIASES = "all biases"
_NAME_PARTS = 3  # Last parts of a path, which tell models apart in names of files.
_NAME_WIDTH = 42
_COLUMNS = (
    f"{'tensor':{_NAME_WIDTH}} {'':6} {'numbers':>10} {'minimum':>11} {'maximum':>11} "
    f"{'range':>10} {'width':>10} {'distinct':>9} {'mean|err|':>10} {'max|err|':>10} "
    f"{'rel.RMS':>9} {'SQNR dB':>8}"
)


def quantize(found: weight_files.WeightFile, scheme: schemes.Scheme) -> dict[str, np.ndarray]:
    """Returns the tensors as their quantized values, by the formulas that `ptq` uses.

    Kernels have a scale for the tensor, or for each output channel (convolutions, or all of them
    with granularity "channel"). Biases, which `ptq` leaves alone, have a scale for the tensor.
    """
    after = {}
    for name, array in found.tensors.items():
        kernel = not weight_files.is_bias(name, array)
        by_channel = kernel and (array.ndim > 2 or scheme.granularity == names.CHANNEL)
        axis = found.channel_axis if kernel else 0
        channels_first = np.moveaxis(array, axis, 0)
        reals = schemes.quantize_array(channels_first, scheme, by_channel).reals
        after[name] = np.moveaxis(reals, 0, axis)
    return after


def visualize(
    path: str, scheme: schemes.Scheme, out: str, part: str = weight_files.POLICY
) -> tuple[str, list[str]]:
    """Draws a model before and after quantization and appends the figures' numbers.

    Returns:
      The block that was appended to the output file, and the paths of that file and the figures.

    Raises:
      errors.UserError: the model cannot be read, or the results not be written.
    """
    found = weight_files.read(path, part)
    after = quantize(found, scheme)
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
    text = _block(found, scheme, wholes, changes)
    output.make_folder(out)
    # Settings other than the default are in the name, so that figures do not replace each other.
    chosen = rows_lib.not_default(rounding=scheme.rounding, granularity=scheme.granularity)
    marks = [*chosen.values(), *([part] if part != weight_files.POLICY else [])]
    stem = os.path.join(out, "-".join([model_name(found.model), scheme.bits, *marks]))
    title = f"{_shortened(found.path, 64)} ({found.kind})\n{_described(scheme)}"
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
    return text, [path, *paths]


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
    layers: dict[str, tuple[list[weight_plots.Change], list[weight_plots.Change]]] = {}
    for name, change in changes.items():
        layer = re.sub("[/.][^/.]*$", "", name)
        layers.setdefault(layer, ([], []))[name in found.biases()].append(change)
    return [
        weight_plots.Layer(*pair)
        for sides in layers.values()
        for pair in itertools.zip_longest(*sides)
    ]


def _described(scheme: schemes.Scheme) -> str:
    if scheme.width is None:
        return f"{scheme.bits}, rounded to nearest"
    scales = {
        names.PAPER: "a scale per tensor, per output channel of convolutions",
        names.CHANNEL: "a scale per output channel",
    }[scheme.granularity]
    return f"{scheme.bits} bits, {scales}, rounding {scheme.rounding}"


def _block(
    found: weight_files.WeightFile,
    scheme: schemes.Scheme,
    wholes: list[weight_plots.Change],
    changes: dict[str, weight_plots.Change],
) -> str:
    """Returns the block to append: the model, the time and the commit, and the table."""
    lines = [
        "=" * len(_COLUMNS),
        f"{found.path} ({found.kind})",
        f"{_described(scheme)}; biases, which ptq keeps in fp32: a scale per tensor",
        f"{time.strftime('%Y-%m-%d %H:%M:%S %Z')}, commit {provenance.git_commit()}",
        *found.notes,
        "width: of the central 99 %; rel.RMS: error / weights; SQNR: signal to quantization noise",
        "",
        _COLUMNS,
    ]
    for change in (*wholes, *changes.values()):
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
