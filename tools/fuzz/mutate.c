/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * How libFuzzer mutates programs for the target "session": mostly by whole instructions (of four bytes, see session.c),
 * which are removed, repeated, moved, or newly made; half of the time by bytes, as libFuzzer does by itself. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define STEP 4 /* bytes of an instruction, and of the settings before the first */

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size,
                                 uint8_t *out, size_t most, unsigned seed);

static unsigned next(unsigned *seed) {
  *seed = *seed * 1103515245u + 12345u;
  return *seed >> 8;
}

static size_t insert(uint8_t *data, size_t size, size_t most, size_t at, const uint8_t step[STEP]) {
  if (size + STEP > most) return size;
  memmove(data + at + STEP, data + at, size - at);
  memcpy(data + at, step, STEP);
  return size + STEP;
}

static size_t take_out(uint8_t *data, size_t size, size_t at, size_t count) {
  size_t length = count * STEP < size - at ? count * STEP : size - at;
  memmove(data + at, data + at + length, size - at - length);
  return size - length;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
  uint8_t step[STEP], other[STEP];
  size_t count = size / STEP;
  unsigned what = next(&seed) % 10;
  if (count < 2 || what >= 5) return LLVMFuzzerMutate(data, size, most);
  size_t at = (1 + next(&seed) % (count - 1)) * STEP, to = (1 + next(&seed) % (count - 1)) * STEP;
  memcpy(step, data + at, STEP);
  memcpy(other, data + to, STEP);
  switch (what) {
    case 0:
      return take_out(data, size, at, 1 + next(&seed) % 4);
    case 1:
      return insert(data, size, most, to, step);
    case 2:
      memcpy(data + at, other, STEP);
      memcpy(data + to, step, STEP);
      return size;
    case 3:
      for (int i = 0; i < STEP; i++) step[i] = (uint8_t)next(&seed);
      step[0] %= 16;
      return insert(data, size, most, to, step);
    default:
      data[at + next(&seed) % STEP] = (uint8_t)next(&seed);
      return size;
  }
}

/* The beginning of one input, and the end of the other. */
size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size,
                                 uint8_t *out, size_t most, unsigned seed) {
  size_t first = (next(&seed) % (a_size / STEP + 1)) * STEP,
         from = (next(&seed) % (b_size / STEP + 1)) * STEP;
  size_t rest = b_size - from;
  if (first > most) first = most;
  if (rest > most - first) rest = most - first;
  memcpy(out, a, first);
  memcpy(out + first, b + from, rest);
  return first + rest;
}
