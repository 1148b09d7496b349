"""Writes the layers of a policy with Arm's CMSIS-NN, which `cortex_benchmark` counts beside ours.

CMSIS-NN is not part of this repository: a folder with its sources is named by a flag. Its fully
connected kernel gets layers of the same sizes with random weights, and clamps instead of tanh.
Imports no framework.
"""

from collections.abc import Sequence
import os
import pathlib

import numpy as np

from actorQ.core import errors

HEADER = "Include/arm_nnfunctions.h"
_KERNELS = (
    "Source/FullyConnectedFunctions/arm_fully_connected_s8.c",
    "Source/NNSupportFunctions/arm_nn_vec_mat_mult_t_s8.c",
)
_POLICY_H = """\
#include <stdint.h>
#define POLICY_OBSERVATION_SIZE {inputs}
#define POLICY_ACTION_SIZE {outputs}
typedef int8_t policy_observation_t;
typedef int8_t policy_action_t;
void policy_act(const policy_observation_t *observation, policy_action_t *action);
"""
_LAYER = """\
static const int8_t weights_{index}[{outputs} * {inputs}] = {{{weights}}};
static const int32_t bias_{index}[{outputs}] = {{{bias}}};
"""
_POLICY_C = """\
#include "policy.h"
#include "arm_nnfunctions.h"
{constants}
static int8_t buffers[2][{widest}];

static void layer(const int8_t *weights, const int32_t *bias, int inputs, int outputs,
                  const int8_t *from, int8_t *to) {{
  const cmsis_nn_context context = {{0}};
  const cmsis_nn_fc_params parameters = {{
      .input_offset = 128, .output_offset = -128, .activation = {{-128, 127}}}};
  const cmsis_nn_per_tensor_quant_params scale = {{1 << 30, -8}};
  const cmsis_nn_dims input = {{1, 1, 1, inputs}}, filter = {{inputs, 1, 1, outputs}};
  const cmsis_nn_dims biases = {{1, 1, 1, outputs}}, output = {{1, 1, 1, outputs}};
  arm_fully_connected_s8(&context, &parameters, &scale, &input, from, &filter, weights, &biases,
                         bias, &output, to);
}}

void policy_act(const policy_observation_t *observation, policy_action_t *action) {{
{calls}
}}
"""


def sources(folder: str) -> list[str]:
    """Returns the compiler's arguments for CMSIS-NN: its kernels and its headers.

    Args:
      folder: Folder of CMSIS-NN's sources.

    Raises:
      errors.UserError: They are not there.
    """
    root = pathlib.Path(folder)
    for name in (HEADER, *_KERNELS):
        if not (root / name).is_file():
            raise errors.UserError(
                f"{folder} is no folder of CMSIS-NN: it has no {name}. Clone "
                "https://github.com/ARM-software/CMSIS-NN."
            )
    return [f"-I{root / 'Include'}", *(str(root / name) for name in _KERNELS)]


def write(sizes: Sequence[int], folder: str | os.PathLike[str]) -> None:
    """Writes policy.c and policy.h for a chain of fully connected layers.

    Args:
      sizes: Numbers of inputs, of each layer's outputs.
      folder: Folder for both files.
    """
    random = np.random.default_rng(0)
    pairs = list(zip(sizes[:-1], sizes[1:], strict=True))
    constants = "".join(
        _LAYER.format(
            index=index, inputs=inputs, outputs=outputs,
            weights=_numbers(random.integers(-127, 128, inputs * outputs)),
            bias=_numbers(random.integers(-1000, 1000, outputs)),
        )
        for index, (inputs, outputs) in enumerate(pairs)
    )
    between = [f"buffers[{index % 2}]" for index in range(len(pairs) - 1)]
    places = ["observation", *between, "action"]
    calls = "\n".join(
        f"  layer(weights_{index}, bias_{index}, {inputs}, {outputs}, {places[index]}, "
        f"{places[index + 1]});"
        for index, (inputs, outputs) in enumerate(pairs)
    )
    target = pathlib.Path(folder)
    (target / "policy.h").write_text(_POLICY_H.format(inputs=sizes[0], outputs=sizes[-1]))
    (target / "policy.c").write_text(
        _POLICY_C.format(constants=constants, widest=max(sizes), calls=calls)
    )


def _numbers(values: np.ndarray) -> str:
    return ",".join(map(str, values.tolist()))
