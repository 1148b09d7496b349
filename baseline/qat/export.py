"""Writes the files of quantization-aware training: a plain agent, its integers, integer models.

- The agent's zip has plain layers with the values of its integers: SB3's own loader takes it.
- `quantization.json` beside it lets `finding.load` quantize activations as in training. It has the
  form of post-training quantization's, with the ranges of the weights as well.
- `packed.safetensors` has the integers, packed to their width.
- `policy.onnx` and `policy.tflite` are models that compute with the integers.
"""

from collections.abc import Mapping
import json
import pathlib
from typing import Any

from actorQ.core import errors
from actorQ.core import files
from baseline.agents import agent as agent_lib
from baseline.agents import integers
from baseline.quantization import acting_path
from baseline.quantization import names
from baseline.quantization import packed_policy
from baseline.quantization import schemes

PACKED_FILENAME = "packed.safetensors"
ONNX_FILENAME = "policy.onnx"
TFLITE_FILENAME = "policy.tflite"
# Exceptions from a quantization.json that holds other things than numbers.
_DAMAGE = (LookupError, TypeError, ValueError, OverflowError, AttributeError)


def write(facts: Mapping[str, Any], path: pathlib.Path) -> None:
    """Writes `quantization.json` beside an agent's zip, unless it is not quantized.

    Args:
      facts: what `qat_model.convert` returned for the model that was saved.
      path: path of the zip, in the zoo's layout.

    Raises:
      errors.UserError: a file cannot be written.
    """
    if facts:
        files.write(_beside(path) / schemes.FILENAME, json.dumps(facts, indent=1))


def training_facts(path: pathlib.Path) -> dict[str, Any]:
    """Returns the settings of an agent's training with quantization; for a control, none.

    Args:
      path: path of its zip.

    Returns:
      `quant_delay`, `ranges` and `widths` as rows have them (no `widths`: ""), `input_bits`,
      `output_bits` (None: its output is not quantized), and `granularity`.

    Raises:
      errors.UserError: the agent was quantized otherwise, or the file is damaged.
    """
    if not (_beside(path) / schemes.FILENAME).exists():
        return {}
    facts = _facts(path)
    try:
        # The layers are in order; a range names its bits only where these are others.
        bits = {
            name: int(own[0] if own else facts["bits"])
            for name, (_, _, *own) in facts["ranges"].items()
        }
        return {
            **facts["training"],
            "input_bits": next(iter(bits.values())),
            "output_bits": bits.get(acting_path.OUTPUT),
            "granularity": facts.get("granularity", names.PAPER),
        }
    except (*_DAMAGE, StopIteration):
        raise errors.UserError(
            f"The facts about the quantization of {path} are damaged: train it again."
        ) from None


def write_packed(agent: agent_lib.Agent) -> pathlib.Path:
    """Writes the integers beside an agent; returns the file.

    Raises:
      errors.UserError: see `integers.packed`; or the file cannot be written.
    """
    path = _beside(agent.path) / PACKED_FILENAME
    packed_policy.write(path, integers.packed(agent))
    return path


def _beside(path: pathlib.Path) -> pathlib.Path:
    return path.parent / path.stem


def _facts(path: pathlib.Path) -> Mapping[str, Any]:
    """Returns the facts that `write` wrote beside an agent's zip."""
    facts_path = _beside(path) / schemes.FILENAME
    try:
        facts = json.loads(facts_path.read_text())
        trained = "training" in facts
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise errors.UserError(f"Cannot read {facts_path}: {errors.summary(error)}") from None
    if not trained:
        raise errors.UserError(f"{path} was not trained with quantization: see baseline.qat.")
    return facts
