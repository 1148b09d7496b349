"""PNG plots as figures of the page, with captions by their place and name."""

import base64
from collections.abc import Sequence
import os
import re
import struct

from actorQ.core import errors
from baseline.report import blocks
from baseline.report import result_files
from baseline.study import paper

_PNG = b"\x89PNG\r\n\x1a\n"
_MANY = 6  # More plots than these: all but the overviews are hidden at first.
# Captions by the file's place. {} stands for the pattern's group: a name that our tools give.
_CAPTIONS = (
    (r"ptq/plots/overview_(\w+)", "{}: mean return against bits after training, all agents. Star: "
     "the best width; dotted line: the fewest bits that are not shown to cost more than 2 %."),
    (r"ptq/plots/(.+)", "{}: mean return against bits after training."),
    (r"qat/plots/overview_(\w+)", "{}: mean return against bits, trained for them (QAT) and "
     "quantized after training (PTQ)."),
    (r"qat/plots/(.+)", "{}: mean return against bits, QAT and PTQ."),
    (r"findings/width_error_(\w+)", "Error E against the width of the weights, over {}."),
    (r"findings/weights-(.+)", "{}: how the weights spread, narrowest agent to widest."),
    (r"atari/learning_curve", "Training of the Atari agent: running mean of its score."),
    (r"mixed_precision/auto/.*timing", "Run time in fp32 over run time with the precision that was "
     "chosen by itself, by policy and threads; diamonds: the paper's."),
    (r"mixed_precision_timing", "Run time in fp32 over run time in half precision, by policy and "
     "threads; diamonds: the paper's."),
    (r"mixed_precision_parity", "Losses of the same 200 steps in fp32 and half precision, "
     "by policy."),
    (r"deployment/deployment", "Latency of the fp32 file over that of the int8 file of the same "
     "runtime, by policy; diamonds: the paper's."),
    (r"/convergence_?([^/]*)", "Return against time, fp32 and quantized actors: {}"),
    (r"/speedup", "Speed-up of time to reward by task, ours and the paper's."),
    (r"/breakdown(?:_torch)?_?([^/]*)", "Where an actor's time goes, phase by phase: {}"),
    (r"/throughput[\w-]*", "Steps per second against the number of actors."),
    (r"/(staleness)", "Final reward and staleness against the actors' update period."),
    (r"/(communication)", "Final reward and message size against the bits on the wire."),
    (r"/(learner_precision)", "Final reward and learner steps per second against the learner's "
     "precision."),
    (r"/(learner_parity)", "Losses of the same steps in float32 and bfloat16."),
    (r"/cluster_(\w+)", "Simulated environment steps per second against actors, {} downloads."),
)


def figures(paths: Sequence[str]) -> list[blocks.Block]:
    """Returns plots as figures; where they are many, plots of one agent are hidden at first.

    Raises:
      errors.UserError: A file is no PNG.
    """
    overview = [path for path in paths if _is_overview(path)] if len(paths) > _MANY else paths
    rest = [_figure(path) for path in paths if path not in overview]
    shown: list[blocks.Block] = [_figure(path) for path in overview]
    return [*shown, blocks.Fold(f"{len(rest)} more plots, one by one", rest)] if rest else shown


def caption(path: str) -> str:
    """Returns a plot's caption, by its place and name."""
    place = path.replace(os.sep, "/").removesuffix(".png")
    for pattern, text in _CAPTIONS:
        if match := re.search(f"{pattern}$", place):
            name = match[1] if match.groups() and match[1] else ""
            name = name or os.path.basename(os.path.dirname(path))
            first, space, rest = name.replace("_", " ").partition(" ")
            return text.format((first.upper() if first in paper.MEANS else first) + space + rest)
    return result_files.titled(path)


def _figure(path: str) -> blocks.Figure:
    data = result_files.read(path)
    if not data.startswith(_PNG) or len(data) < 24:
        raise errors.UserError(f"{path} is damaged: it is no PNG image. Make it again.")
    width, height = struct.unpack(">II", data[16:24])
    return blocks.Figure(base64.b64encode(data).decode("ascii"), width, height, caption(path))


def _is_overview(path: str) -> bool:
    return os.path.basename(path).startswith(("overview_", "width_error_", "speedup"))
