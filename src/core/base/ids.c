/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/base/ids.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The table is a power of two, and at least twice as large as the set: so a probe always finds a free slot, mostly
 * a near one. */
bool al_ids_init(al_ids *ids, size_t most) {
  ids->size = 2;
  while (ids->size < 2 * most) ids->size *= 2;
  ids->slots = calloc(ids->size, sizeof *ids->slots);
  return ids->slots != NULL;
}

/* 0: not an id that this library made. */
static uint64_t parse(const char *id) {
  if (strlen(id) != AL_TICKET_SIZE - 1 || strspn(id, "0123456789abcdef") != AL_TICKET_SIZE - 1) return 0;
  return strtoull(id, NULL, 16);
}

bool al_id_is_ours(const char *id) { return parse(id) != 0; }

bool al_ids_add(al_ids *ids, const char *id) {
  uint64_t number = parse(id);
  if (number == 0) return true;
  for (uint64_t at = number * UINT64_C(0x9E3779B97F4A7C15);; at++) {
    uint64_t *slot = &ids->slots[at % ids->size];
    if (*slot == number) return false;
    if (*slot != 0) continue;
    *slot = number;
    return true;
  }
}

bool al_ids_take(al_ids *ids, char id[AL_TICKET_SIZE]) {
  while (ids->at < ids->size && ids->slots[ids->at] == 0) ids->at++;
  if (ids->at == ids->size) return false;
  snprintf(id, AL_TICKET_SIZE, "%016" PRIx64, ids->slots[ids->at++]);
  return true;
}

void al_ids_free(al_ids *ids) {
  free(ids->slots);
  *ids = (al_ids){0};
}
