"""Writes an agent as C files: the policy, its header, an example that plays it, and a Makefile."""

import dataclasses
import pathlib
import re

from actorQ.core import errors
from actorQ.core import files
from baseline.formats import c_header
from baseline.formats import c_integers
from baseline.formats import c_policy
from baseline.formats import integer_form
from baseline.formats import names

_EXAMPLE = """\
/* Reads observations from the standard input, numbers apart by white space; prints actions. */
#include <stdio.h>

#include "policy.h"

int main(void) {
  static policy_observation_t observation[POLICY_OBSERVATION_SIZE];
  static policy_action_t action[POLICY_ACTION_SIZE];
  for (int i = 0;; i++) {
    double number;
    if (i == POLICY_OBSERVATION_SIZE) {
      policy_act(observation, action);
      for (int a = 0; a < POLICY_ACTION_SIZE; a++) {
        printf(a ? " %.9g" : "%.9g", (double)action[a] / POLICY_ACTION_ONE);
      }
      printf("\\n");
      i = 0;
    }
    if (scanf("%lf", &number) != 1) return i != 0; /* The last observation is not whole. */
    observation[i] = (policy_observation_t)(number * POLICY_OBSERVATION_ONE);
  }
}
"""
_MAKEFILE = """\
# `make` builds the example for this machine; `make cortex-m4.o` compiles the policy for a board.
CFLAGS = -std=c99 -O2 -Wall -Wextra -pedantic
CORTEX_M4 = -mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16

example: main.c policy.c policy.h
\t$(CC) $(CFLAGS) -o $@ main.c policy.c -lm

cortex-m4.o: policy.c policy.h
\tarm-none-eabi-gcc $(CORTEX_M4) $(CFLAGS) -c -o $@ policy.c

clean:
\trm -f example cortex-m4.o

.PHONY: clean
"""
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20}


@dataclasses.dataclass(frozen=True)
class Options:
    """Says how C files are written.

    Attributes:
      floats: One of `names.FLOATS`: whether the file computes with floats between its layers.
      flash_limit: Bytes of weights and tables at most; None: no limit.
    """

    floats: str = names.HARD
    flash_limit: int | None = None


def parse_bytes(text: str) -> int:
    """Returns a number of bytes: 262144, 256K or 1M.

    Raises:
      errors.UserError: The text is none.
    """
    match = re.fullmatch(r"(\d{1,12})([KM]?)", text.strip().upper().removesuffix("B"))
    if match is None or not int(match[1]):
        raise errors.UserError(f"--flash_limit={text}: say a number of bytes, such as 256K or 1M.")
    return int(match[1]) * _UNITS[match[2]]


def flash_bytes(content: bytes) -> int:
    """Returns the bytes of weights and tables that policy.c tells."""
    match = re.search(rb"#define POLICY_FLASH_BYTES (\d+)", content)
    assert match is not None, "Every policy.c tells them."
    return int(match[1])


def export(form: integer_form.Form, options: Options, facts: list[str]) -> bytes:
    """Returns policy.c.

    Args:
      form: The policy.
      options: How to write it.
      facts: Lines for people on what it is.

    Raises:
      errors.UserError: It has no such form, or does not fit into the flash.
    """
    write_policy = c_integers.export if options.floats == names.NONE else c_policy.export
    made = write_policy(form, facts)
    limit = options.flash_limit
    if limit is not None and made.flash_bytes > limit:
        raise errors.UserError(
            f"Weights and tables take {made.flash_bytes} bytes, and --flash_limit is {limit}: "
            "fewer --bits or a smaller policy take less. Nothing was written."
        )
    return made.source.encode()


def write(content: bytes, folder: pathlib.Path) -> None:
    """Writes what belongs beside policy.c into a folder that exists.

    Args:
      content: policy.c.
      folder: The folder.

    Raises:
      errors.UserError: A file cannot be written.
    """
    files.write(folder / c_header.HEADER, c_header.header(content.decode()))
    files.write(folder / "main.c", _EXAMPLE)
    files.write(folder / "Makefile", _MAKEFILE)
