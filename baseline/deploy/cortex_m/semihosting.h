/* Files and the end of a program, by calls of the debugger or emulator (Arm's semihosting). */
#ifndef SEMIHOSTING_H
#define SEMIHOSTING_H

#include <stddef.h>
#include <stdint.h>

enum { SYS_OPEN = 0x01, SYS_CLOSE = 0x02, SYS_WRITE = 0x05, SYS_READ = 0x06, SYS_EXIT = 0x18 };
enum { READ_BINARY = 1, WRITE_BINARY = 5 };

static inline uintptr_t semihosting_call(uintptr_t operation, uintptr_t argument) {
  register uintptr_t r0 __asm("r0") = operation;
  register uintptr_t r1 __asm("r1") = argument;
  __asm volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}

static inline void semihosting_exit(int good) {
  semihosting_call(SYS_EXIT, good ? 0x20026u : 0x20023u); /* Application exit, run-time error. */
  for (;;) {
  }
}

static inline uintptr_t file_open(const char *name, uintptr_t mode) {
  uintptr_t block[3] = {(uintptr_t)name, mode, 0};
  while (name[block[2]]) block[2]++;
  return semihosting_call(SYS_OPEN, (uintptr_t)block);
}

static inline void file_close(uintptr_t file) {
  semihosting_call(SYS_CLOSE, (uintptr_t)&file);
}

/* Returns the bytes that were not read. */
static inline size_t file_read(uintptr_t file, void *to, size_t bytes) {
  uintptr_t block[3] = {file, (uintptr_t)to, bytes};
  return semihosting_call(SYS_READ, (uintptr_t)block);
}

/* Returns the bytes that were not written. */
static inline size_t file_write(uintptr_t file, const void *from, size_t bytes) {
  uintptr_t block[3] = {file, (uintptr_t)from, bytes};
  return semihosting_call(SYS_WRITE, (uintptr_t)block);
}

#endif
