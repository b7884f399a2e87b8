/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The known word that a mistyped one is nearest to.
 *
 *     cli_nearest nearest = cli_nearest_to("slost", 5);
 *     cli_nearest_offer(&nearest, "slots");
 *     cli_error("unknown%s%s", nearest.known ? "; did you mean " : "", nearest.known ? nearest.known : ""); */
#ifndef CLI_COMMON_NEAREST_H
#define CLI_COMMON_NEAREST_H

#include <stddef.h>

typedef struct cli_nearest {
  const char *word;
  size_t length;
  const char *known; /* NULL: none is near */
  size_t distance;   /* by how many characters `known` differs */
} cli_nearest;

/* `word` has `length` bytes. */
cli_nearest cli_nearest_to(const char *word, size_t length);

/* Takes `known` if it is nearer than the words before, and differs in a third of the characters at most. */
void cli_nearest_offer(cli_nearest *nearest, const char *known);

#endif
