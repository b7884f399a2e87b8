/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/common/nearest.h"

#define LENGTH_MOST 32

/* By how many characters two words differ: left out, put in, or exchanged. The table of Wagner and Fischer, row by row. */
static size_t distance(const char *word, size_t length, const char *known) {
  size_t row[LENGTH_MOST + 1];
  for (size_t i = 0; i <= length; i++) row[i] = i;
  for (; *known; known++) {
    size_t corner = row[0]++;
    for (size_t i = 1; i <= length; i++) {
      size_t exchanged = corner + (word[i - 1] != *known);
      size_t other = row[i] < row[i - 1] ? row[i] + 1 : row[i - 1] + 1;
      corner = row[i];
      row[i] = exchanged < other ? exchanged : other;
    }
  }
  return row[length];
}

cli_nearest cli_nearest_to(const char *word, size_t length) {
  size_t most = length <= LENGTH_MOST ? (length + 1) / 3 : 0;
  return (cli_nearest){.word = word, .length = length, .distance = most + 1};
}

void cli_nearest_offer(cli_nearest *nearest, const char *known) {
  if (nearest->distance <= 1) return;
  size_t differs = distance(nearest->word, nearest->length, known);
  if (differs >= nearest->distance) return;
  nearest->known = known;
  nearest->distance = differs;
}
