"""Shows how quantization changes a model's weights and biases.

    python -m baseline.visualize -f FOLDER -b 8

FOLDER may be a file or folder of any kind that `weight_files` reads. Draws the distributions
before and after, all together and layer by layer, and appends their figures to OUT/output.txt.
"""

import sys

from absl import flags

from actorQ.core import cli
from actorQ.core import lean_imports
from baseline.agents import weight_files
from baseline.study import measuring_flags


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
    with lean_imports.without("tensorboard"):  # SB3 would load TensorFlow with it.
        from baseline.quantization import schemes
        from baseline.study import weight_changes

    scheme = schemes.Scheme(
        schemes.parse_bits(values.num_bits), granularity=values.granularity,
        rounding=values.rounding,
    )
    text, paths = weight_changes.visualize(values.folder, scheme, values.out, values.part)
    sys.stdout.write(text + "\n" + "\n".join(paths) + "\n")


if __name__ == "__main__":
    define_flags()
    cli.run(main, name="visualize")
