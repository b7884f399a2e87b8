/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/hold/names.h"

#include <string.h>

#include "core/session/session.h"

static unsigned bucket_of(const char *queue) {
  uint32_t hash = 2166136261u; /* FNV-1a */
  for (const char *c = queue; *c; c++) hash = (hash ^ (unsigned char)*c) * 16777619u;
  return hash % AL_NAME_BUCKETS;
}

static al_name_entry **first_beside(const al_claim *claim) {
  return &claim->session->names[bucket_of(claim->queue)];
}

void al_names_enter(al_name_entry *entry, const al_claim *claim) {
  al_name_entry **first = first_beside(claim);
  *entry = (al_name_entry){.claim = claim, .next = *first};
  *first = entry;
}

void al_names_remove(al_name_entry *entry) {
  al_name_entry **at = first_beside(entry->claim);
  while (*at && *at != entry) at = &(*at)->next;
  if (*at) *at = entry->next;
}

const al_claim *al_names_find(const al_session *session, const char *queue) {
  const al_name_entry *entry = session->names[bucket_of(queue)];
  while (entry && strcmp(entry->claim->queue, queue) != 0) entry = entry->next;
  return entry ? entry->claim : NULL;
}

bool al_names_are_any(const al_session *session) {
  for (int i = 0; i < AL_NAME_BUCKETS; i++)
    if (session->names[i]) return true;
  return false;
}
