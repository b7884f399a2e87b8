/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Pseudo-random numbers: SplitMix64. The caller gives the seed, so that a run can be replayed. */
#ifndef AL_CORE_BASE_RANDOM_H
#define AL_CORE_BASE_RANDOM_H

#include <stdint.h>

uint64_t al_random(uint64_t *state);

/* Returns a number from 0 to `bound` - 1, or 0 if `bound` is not positive. */
int64_t al_random_below(uint64_t *state, int64_t bound);

#endif
