"""Policies in C are built for a Cortex-M and played in qemu, which counts their instructions."""

import numpy as np
import pytest

from actorQ.core import errors
from baseline.deploy import firmware

pytestmark = pytest.mark.skipif(
    bool(firmware.missing()), reason=f"{', '.join(firmware.missing())} not installed"
)
M4 = firmware.CORES["cortex-m4"]
ROUNDS = 50_000
HEADER = """
#include <stdint.h>
#define POLICY_OBSERVATION_SIZE 3
#define POLICY_ACTION_SIZE 2
typedef float policy_observation_t;
typedef int policy_action_t;
void policy_act(const policy_observation_t *observation, policy_action_t *action);
"""
# A loop of two instructions, and 1,000 bytes of stack.
SOURCE = f"""
#include "policy.h"
static int calls = 7;
static volatile unsigned char buffer[256];
static const unsigned char table[3000] = {{1, 2, 3}};
void policy_act(const policy_observation_t *observation, policy_action_t *action) {{
  volatile unsigned char kept[1000];
  unsigned n = {ROUNDS};
  __asm volatile("1: subs %0, #1\\n bne 1b" : "+r"(n) : : "cc");
  for (unsigned i = 0; i < sizeof(kept); i += 8) kept[i] = 1;
  buffer[calls & 255] = kept[8];
  action[0] = (int)(2.0f * observation[0]) + table[calls + 100];
  action[1] = ++calls;
}}
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "policy.h").write_text(HEADER)
    (tmp_path / "policy.c").write_text(SOURCE)
    return tmp_path


@pytest.mark.parametrize("core", firmware.CORES.values(), ids=firmware.CORES)
def test_instructions_stack_and_actions_are_those_of_the_program(folder, core):
    states = np.arange(300, dtype=np.float32).reshape(100, 3)
    played = firmware.play(folder, core, states, np.dtype(np.int32), 2, 4 * ROUNDS)
    np.testing.assert_array_equal(played.actions[:, 0], 2 * states[:, 0])
    np.testing.assert_array_equal(played.actions[:, 1], np.arange(8, 108))
    loop = 2 * ROUNDS
    assert loop < played.instructions < loop + 2_000
    assert 1_000 <= played.stack < 1_200


def test_the_timer_does_not_wrap_in_a_long_stretch(folder):
    path = folder / "policy.c"
    path.write_text(path.read_text().replace(str(ROUNDS), str(100 * ROUNDS)))
    states = np.zeros((100, 3), np.float32)
    played = firmware.play(folder, M4, states, np.dtype(np.int32), 2, 201 * ROUNDS)
    assert played.instructions == pytest.approx(200 * ROUNDS, rel=1e-3)


def test_memory_is_that_of_the_policy_alone(folder):
    size = firmware.size(folder, M4)
    assert 3_000 < size.flash < 3_400
    assert size.ram == 256 + 4


def test_a_policy_that_does_not_fit_is_refused(folder):
    path = folder / "policy.c"
    path.write_text(path.read_text().replace("table[3000]", "table[5000000]"))
    with pytest.raises(errors.UserError, match="arm-none-eabi-gcc failed: .*overflow"):
        firmware.play(folder, M4, np.zeros((1, 3), np.float32), np.dtype(np.int32), 2, 1_000)


def test_a_policy_that_crashes_is_told(folder):
    path = folder / "policy.c"
    crash = "*(volatile int *)0xF0000000 = 1; unsigned n ="
    path.write_text(path.read_text().replace("unsigned n =", crash))
    with pytest.raises(errors.UserError, match="qemu-system-arm failed"):
        firmware.play(folder, M4, np.zeros((1, 3), np.float32), np.dtype(np.int32), 2, 1_000)
