/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Chance, from a seed that the outside gives: SplitMix64, so that a run can be replayed. */
#ifndef AL_CORE_BASE_RANDOM_H
#define AL_CORE_BASE_RANDOM_H

#include <stdint.h>

uint64_t al_random(uint64_t *state);

/* A number from 0 to below `bound`; 0 if the bound is not positive. */
int64_t al_random_below(uint64_t *state, int64_t bound);

#endif
