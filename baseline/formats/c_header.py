"""Writes what policies in C have in common, with floats and without: the header and the head."""

from collections.abc import Sequence
from typing import NamedTuple

from baseline.quantization import acting_path

SOURCE, HEADER = "policy.c", "policy.h"
_END_OF_HEADER = "#endif /* POLICY_H */\n"


class Policy(NamedTuple):
    """A policy in C.

    Attributes:
      source: Text of policy.c, which begins with that of policy.h.
      flash_bytes: Bytes of its constant arrays; code is not among them.
      ram_bytes: Bytes of its static buffers; the stack is not among them.
    """

    source: str
    flash_bytes: int
    ram_bytes: int


def header(source: str) -> str:
    """Returns the text of policy.h for that of policy.c."""
    before, end, _ = source.partition(_END_OF_HEADER)
    return before + end


class Sizes(NamedTuple):
    """Numbers of an observation, an action and the outputs; bytes of flash and RAM."""

    inputs: int
    actions: int
    outputs: int
    flash: int
    ram: int


class Types(NamedTuple):
    """C types of the numbers of an observation, an action and the outputs.

    `one` and `action_one` are what stands for 1.0 in an observation and in an action.
    """

    observation: str
    action: str
    output: str
    one: int = 1
    action_one: int = 1


def header_of(facts: Sequence[str], head: str, sizes: Sizes, types: Types) -> str:
    """Returns the text of policy.h."""
    comment = [
        *facts,
        f"Head: {head}",
        f"Constants take {sizes.flash} bytes of flash, and buffers {sizes.ram} bytes of RAM. Code "
        "and stack come on top.",
        "Compile with -std=c99, or with -ffp-contract=off: fused operations round otherwise. Leave "
        "-ffast-math out.",
        "Observations must be finite numbers.",
    ]
    return _HEADER.format(
        **sizes._asdict(), **types._asdict(), comment=_comment(comment), end=_END_OF_HEADER
    )


def discrete_head(network: acting_path.PolicyNetwork, zero: str) -> tuple[str, int, str]:
    """Returns the statements of a discrete head, the numbers of an action, and their type.

    Args:
      network: The acting path.
      zero: The output 0 in C.
    """
    outputs = network.num_outputs
    if network.head == "positive":
        line = f"action[i] = output[i] > {zero};"
        return f"  for (int i = 0; i < {outputs}; i++) {{ {line} }}\n", outputs, "int"
    sizes, text, start = network.sizes or (outputs,), "", 0
    for place, size in enumerate(sizes):
        text += (
            f"  action[{place}] = 0;\n"
            f"  for (int i = 1; i < {size}; i++) {{\n"
            f"    if (output[{start} + i] > output[{start} + action[{place}]]) "
            f"action[{place}] = i;\n"
            "  }\n"
        )
        start += size
    return text, len(sizes), "int"


FUNCTIONS_OF_OUTPUTS = """\
void policy_outputs(const policy_observation_t *observation, policy_output_t *found) {{
  {forward}
  for (int i = 0; i < {outputs}; i++) found[i] = output[i];
}}

void policy_act(const policy_observation_t *observation, policy_action_t *action) {{
  {forward}
{head}}}
"""
_HEADER = """\
{comment}
#ifndef POLICY_H
#define POLICY_H

#include <stdint.h>

#define POLICY_OBSERVATION_SIZE {inputs}
#define POLICY_ACTION_SIZE {actions}
#define POLICY_OUTPUT_SIZE {outputs}
#define POLICY_OBSERVATION_ONE {one} /* Stands for 1.0 in an observation. */
#define POLICY_ACTION_ONE {action_one} /* Stands for 1.0 in an action. */
#define POLICY_FLASH_BYTES {flash} /* Constant arrays. */
#define POLICY_RAM_BYTES {ram} /* Static buffers. */

typedef {observation} policy_observation_t;
typedef {action} policy_action_t;
typedef {output} policy_output_t;

#ifdef __cplusplus
extern "C" {{
#endif

/* Takes a raw observation, gives the action. Both have the units of the task. Not reentrant. */
void policy_act(const policy_observation_t *observation, policy_action_t *action);
/* Gives the last layer's outputs, which the action follows from. */
void policy_outputs(const policy_observation_t *observation, policy_output_t *output);

#ifdef __cplusplus
}}
#endif

{end}"""


def _comment(lines: Sequence[str]) -> str:
    """Returns lines as a comment; nothing in them ends it."""
    safe = [line.replace("*/", "* /").replace("/*", "/ *") for line in lines]
    return "/* " + "\n * ".join(safe) + " */"
