/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/acquire/boldness.h"

#define LEAST 3
#define MOST 1024

void al_boldness_init(al_boldness *boldness) { *boldness = (al_boldness){.needed = LEAST}; }

bool al_boldness_is_enough(const al_boldness *boldness) { return boldness->wins >= boldness->needed; }

void al_boldness_note_win(al_boldness *boldness) {
  boldness->wins++;
  if (boldness->wins % MOST == 0) boldness->needed /= 2;
  if (boldness->needed < LEAST) boldness->needed = LEAST;
}

void al_boldness_note_contest(al_boldness *boldness) { boldness->wins = 0; }

void al_boldness_note_loss(al_boldness *boldness) {
  boldness->wins = 0;
  boldness->needed *= 2;
  if (boldness->needed > MOST) boldness->needed = MOST;
}
