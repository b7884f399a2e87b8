/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/wire/nodes.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/random.h"

static void shuffle(al_nodes *nodes, uint64_t seed) {
  for (size_t left = nodes->count; left > 1; left--) {
    size_t pick = (size_t)al_random_below(&seed, (int64_t)left);
    al_settings last = nodes->at[left - 1];
    nodes->at[left - 1] = nodes->at[pick];
    nodes->at[pick] = last;
    explicit_bzero(&last, sizeof last);
  }
}

al_nodes *al_nodes_new(const al_settings *settings, size_t count, const al_settings *usual,
                       const uint64_t *seed) {
  al_nodes *nodes = malloc(sizeof *nodes + count * sizeof *settings);
  if (!nodes) return NULL;
  nodes->count = count;
  memcpy(nodes->at, settings, count * sizeof *settings);
  for (size_t i = 0; i < count; i++) {
    memcpy(nodes->at[i].vhost, usual->vhost, sizeof usual->vhost);
    memcpy(nodes->at[i].name, usual->name, sizeof usual->name);
    nodes->at[i].timeout = usual->timeout;
  }
  if (seed) shuffle(nodes, *seed);
  return nodes;
}

void al_nodes_free(al_nodes *nodes) {
  if (!nodes) return;
  explicit_bzero(nodes->at, nodes->count * sizeof *nodes->at);
  free(nodes);
}

bool al_nodes_go_on(al_code code) {
  return code == AL_UNREACHABLE || code == AL_PROTOCOL || code == AL_LIMIT;
}
