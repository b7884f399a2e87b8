/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/hold/names.h"

#include <string.h>

#include "core/session/annex.h"

#define BUCKETS 64

typedef struct names {
  al_name_entry *buckets[BUCKETS];
  uint64_t entered, removed;
} names;

static const al_annex_kind kind = {.size = sizeof(names), .most = 1};

/* NULL: nothing was ever entered. */
static names *table_of(const al_session *session) { return al_annex_find(session, &kind, ""); }

static al_name_entry **bucket_of(names *table, const char *queue) {
  uint32_t hash = 2166136261u; /* FNV-1a */
  for (const char *c = queue; *c; c++) hash = (hash ^ (unsigned char)*c) * 16777619u;
  return &table->buckets[hash % BUCKETS];
}

bool al_names_enter(al_name_entry *entry, const al_claim *claim) {
  names *table = al_annex_use(claim->session, &kind, "");
  if (!table) return false;
  al_name_entry **first = bucket_of(table, claim->queue);
  *entry = (al_name_entry){.claim = claim, .next = *first};
  *first = entry;
  table->entered++;
  return true;
}

void al_names_remove(al_name_entry *entry) {
  names *table = table_of(entry->claim->session);
  al_name_entry **at = bucket_of(table, entry->claim->queue);
  while (*at && *at != entry) at = &(*at)->next;
  if (*at) *at = entry->next;
  table->removed++;
}

const al_claim *al_names_find(const al_session *session, const char *queue) {
  names *table = table_of(session);
  const al_name_entry *entry = table ? *bucket_of(table, queue) : NULL;
  while (entry && strcmp(entry->claim->queue, queue) != 0) entry = entry->next;
  return entry ? entry->claim : NULL;
}

bool al_names_are_any(const al_session *session) {
  const names *table = table_of(session);
  return table && table->entered != table->removed;
}

uint64_t al_names_removed(const al_session *session) {
  const names *table = table_of(session);
  return table ? table->removed : 0;
}
