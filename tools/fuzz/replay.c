/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Runs a fuzzing target without a fuzzer: each line of the standard input is one input, in hexadecimal; spaces are
 * ignored. It prints the number of each input before it runs it, so that after a crash the last number is the failing
 * one. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST (1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int digit(int c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

/* Returns -1 at the end of the input. */
static long read_line(uint8_t *out) {
  long count = 0;
  int c;
  while ((c = getchar()) != EOF && c != '\n') {
    int high = digit(c), low = high < 0 ? -1 : digit(getchar());
    if (low >= 0 && count < MOST) out[count++] = (uint8_t)(high * 16 + low);
  }
  return c == EOF && count == 0 ? -1 : count;
}

int main(void) {
  uint8_t *line = malloc(MOST);
  long size;
  if (!line) return 1;
  for (int number = 1; (size = read_line(line)) >= 0; number++) {
    printf("%d\n", number);
    fflush(stdout);
    uint8_t *exact = malloc(size > 0 ? (size_t)size : 1); /* so that the sanitizers see its end */
    if (!exact) return 1;
    for (long i = 0; i < size; i++) exact[i] = line[i];
    LLVMFuzzerTestOneInput(exact, (size_t)size);
    free(exact);
  }
  free(line);
  return 0;
}
