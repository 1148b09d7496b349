/* Starts a Cortex-M4 or M7: the vector table, the memory, the floating point unit.
 *
 * It is made for qemu's mps2 boards, where exceptions end the run. */
#include <stdint.h>

#include "semihosting.h"

#define COPROCESSOR_ACCESS (*(volatile uint32_t *)0xE000ED88u)

extern uint32_t stack_top[], data_load[], data_start[], data_end[], bss_start[], bss_end[];
int main(void);
void reset(void);

static void fault(void) { semihosting_exit(0); }

void reset(void) {
  const uint32_t *from = data_load;
  COPROCESSOR_ACCESS |= 0xFu << 20; /* Coprocessors 10 and 11 are the floating point unit. */
  __asm volatile("dsb\n isb" ::: "memory");
  for (uint32_t *to = data_start; to < data_end;) *to++ = *from++;
  for (uint32_t *to = bss_start; to < bss_end;) *to++ = 0;
  semihosting_exit(main() == 0);
}

__attribute__((section(".vectors"), used)) static const uintptr_t vectors[16] = {
    (uintptr_t)stack_top, (uintptr_t)reset, (uintptr_t)fault, (uintptr_t)fault,
    (uintptr_t)fault, (uintptr_t)fault, (uintptr_t)fault,
};
