/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/acquire/race.h"

#include <string.h>

#include "core/base/random.h"

#define MOST_USUALLY 8
#define SKEW_MOST (10 * AL_MILLISECOND)

void al_race_init(al_race *race, int max_attempts) {
  *race = (al_race){.most = max_attempts > 0 ? max_attempts : MOST_USUALLY};
}

void al_race_note(al_race *race, const al_exclusive *own) {
  memcpy(race->why, own->claim.why, sizeof race->why);
  bool is_excused = own->learned_denial && !race->was_excused;
  race->was_excused = race->was_excused || is_excused;
  if (!is_excused) race->lost++;
}

bool al_race_is_over(const al_race *race) { return race->lost >= race->most; }

int64_t al_race_skew(uint64_t *random) { return (int64_t)al_random_below(random, SKEW_MOST); }

void al_race_reset(al_race *race) { race->lost = 0; }
