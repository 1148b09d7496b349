/* Plays states.bin with a policy, writes actions.bin, and counts instructions and stack.
 *
 * The emulator executes one instruction in each nanosecond of its own clock (-icount shift=0). The
 * timer counts that clock at 25 MHz, so that a tick is 40 instructions. */
#include <stdint.h>

#include "policy.h"
#include "semihosting.h"

#define INSTRUCTIONS_PER_TICK 40u
#define TICKS 0xFFFFFFu /* The timer counts 24 bits down. */
#define TIMER_CONTROL (*(volatile uint32_t *)0xE000E010u)
#define TIMER_RELOAD (*(volatile uint32_t *)0xE000E014u)
#define TIMER_VALUE (*(volatile uint32_t *)0xE000E018u)
#define UNUSED_STACK 0xA5A5A5A5u

#ifndef STATES_AT_ONCE
#define STATES_AT_ONCE 16 /* A stretch of the clock; it must end before the timer wraps. */
#endif

extern uint32_t stack_bottom[];

typedef struct {
  uint32_t states;
  uint32_t stack_bytes;
  uint64_t instructions;
} result_t;

static policy_observation_t observations[STATES_AT_ONCE][POLICY_OBSERVATION_SIZE];
static policy_action_t actions[STATES_AT_ONCE][POLICY_ACTION_SIZE];

static uint32_t *stack_pointer(void) {
  uint32_t *pointer;
  __asm volatile("mov %0, sp" : "=r"(pointer));
  return pointer;
}

static __attribute__((noinline)) uint32_t play(uint32_t count) {
  TIMER_VALUE = 0; /* Any write clears it. */
  uint32_t before = TIMER_VALUE;
  for (uint32_t i = 0; i < count; i++) policy_act(observations[i], actions[i]);
  return (before - TIMER_VALUE) & TICKS;
}

int main(void) {
  result_t result = {0, 0, 0};
  uintptr_t states = file_open("states.bin", READ_BINARY);
  uintptr_t played = file_open("actions.bin", WRITE_BINARY);
  uint32_t *end = stack_pointer() - 8, *used = stack_bottom;
  for (uint32_t *word = stack_bottom; word < end; word++) *word = UNUSED_STACK;
  TIMER_RELOAD = TICKS;
  TIMER_VALUE = 0;
  TIMER_CONTROL = 5; /* It runs by the processor's clock, without interrupts. */
  for (;;) {
    size_t missing = file_read(states, observations, sizeof(observations));
    uint32_t count = (uint32_t)((sizeof(observations) - missing) / sizeof(observations[0]));
    if (count == 0) break;
    result.instructions += (uint64_t)play(count) * INSTRUCTIONS_PER_TICK;
    result.states += count;
    if (file_write(played, actions, count * sizeof(actions[0]))) return 1;
  }
  while (used < end && *used == UNUSED_STACK) used++;
  result.stack_bytes = (uint32_t)((char *)stack_pointer() - (char *)used);
  file_close(played);
  uintptr_t file = file_open("result.bin", WRITE_BINARY);
  if (file_write(file, &result, sizeof(result))) return 1;
  file_close(file);
  return 0;
}
