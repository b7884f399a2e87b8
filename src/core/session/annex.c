/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/session/annex.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct al_annex {
  al_annex *next; /* in its bucket */
  const al_annex_kind *kind;
  uint64_t used; /* the greatest is that of the latest */
  char name[AL_NAME_SIZE];
  max_align_t thing[];
};

/* The pointer to it, or to the end of its bucket. */
static al_annex **find(const al_session *session, const al_annex_kind *kind, const char *name) {
  uint32_t hash = 2166136261u; /* FNV-1a */
  for (const char *c = name; *c; c++) hash = (hash ^ (unsigned char)*c) * 16777619u;
  al_annex **at = (al_annex **)&session->annexes[hash % AL_ANNEX_BUCKETS];
  while (*at && ((*at)->kind != kind || strcmp((*at)->name, name) != 0)) at = &(*at)->next;
  return at;
}

static void drop(al_annex **at) {
  al_annex *annex = *at;
  *at = annex->next;
  if (annex->kind->drop) annex->kind->drop(annex->thing);
  free(annex);
}

/* Makes room for one more. */
static void drop_oldest(al_session *session, const al_annex_kind *kind) {
  al_annex **oldest = NULL;
  int count = 0;
  for (int i = 0; i < AL_ANNEX_BUCKETS; i++)
    for (al_annex **at = &session->annexes[i]; *at; at = &(*at)->next) {
      if ((*at)->kind != kind) continue;
      count++;
      if (!oldest || (*at)->used < (*oldest)->used) oldest = at;
    }
  if (count >= kind->most) drop(oldest);
}

static al_annex *make(al_session *session, const al_annex_kind *kind, const char *name) {
  if (kind->most > 0) drop_oldest(session, kind);
  al_annex *annex = calloc(1, sizeof *annex + kind->size);
  if (!annex) return NULL;
  annex->kind = kind;
  snprintf(annex->name, sizeof annex->name, "%s", name);
  return *find(session, kind, name) = annex;
}

void *al_annex_use(al_session *session, const al_annex_kind *kind, const char *name) {
  al_annex *annex = *find(session, kind, name);
  if (!annex && !(annex = make(session, kind, name))) return NULL;
  annex->used = ++session->annex_uses;
  return annex->thing;
}

void *al_annex_find(const al_session *session, const al_annex_kind *kind, const char *name) {
  al_annex *annex = *find(session, kind, name);
  return annex ? annex->thing : NULL;
}

void al_annex_drop(al_session *session, const al_annex_kind *kind, const char *name) {
  al_annex **at = find(session, kind, name);
  if (*at) drop(at);
}

void al_annex_each(al_session *session, const al_annex_kind *kind,
                   void (*visit)(al_session *, const char *name, void *thing)) {
  for (int i = 0; i < AL_ANNEX_BUCKETS; i++)
    for (al_annex *annex = session->annexes[i]; annex; annex = annex->next)
      if (annex->kind == kind) visit(session, annex->name, annex->thing);
}

void al_annexes_free(al_session *session) {
  for (int i = 0; i < AL_ANNEX_BUCKETS; i++)
    while (session->annexes[i]) drop(&session->annexes[i]);
}
