/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/session/annex.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct al_annex {
  al_annex *next; /* used before this one */
  const al_annex_kind *kind;
  char name[AL_NAME_SIZE];
  max_align_t thing[];
};

/* The pointer to it, or to the end. */
static al_annex **find(al_annex **at, const al_annex_kind *kind, const char *name) {
  while (*at && ((*at)->kind != kind || strcmp((*at)->name, name) != 0)) at = &(*at)->next;
  return at;
}

static void drop(al_annex **at) {
  al_annex *annex = *at;
  *at = annex->next;
  if (annex->kind->drop) annex->kind->drop(annex->thing);
  free(annex);
}

static void drop_rest(al_annex **at, const al_annex_kind *kind) {
  int seen = 0;
  while (*at) {
    seen += (*at)->kind == kind;
    if ((*at)->kind == kind && seen > kind->most)
      drop(at);
    else
      at = &(*at)->next;
  }
}

void *al_annex_use(al_session *session, const al_annex_kind *kind, const char *name) {
  al_annex **at = find(&session->annexes, kind, name), *annex = *at;
  if (annex)
    *at = annex->next;
  else if (!(annex = calloc(1, sizeof *annex + kind->size)))
    return NULL;
  annex->kind = kind;
  snprintf(annex->name, sizeof annex->name, "%s", name);
  annex->next = session->annexes;
  session->annexes = annex;
  drop_rest(&session->annexes, kind);
  return annex->thing;
}

void *al_annex_find(const al_session *session, const al_annex_kind *kind, const char *name) {
  al_annex *first = session->annexes, *annex = *find(&first, kind, name);
  return annex ? annex->thing : NULL;
}

void al_annex_drop(al_session *session, const al_annex_kind *kind, const char *name) {
  al_annex **at = find(&session->annexes, kind, name);
  if (*at) drop(at);
}

void al_annex_each(al_session *session, const al_annex_kind *kind,
                   void (*visit)(al_session *, const char *name, void *thing)) {
  for (al_annex *annex = session->annexes; annex; annex = annex->next)
    if (annex->kind == kind) visit(session, annex->name, annex->thing);
}

void al_annexes_drop(al_session *session, bool is_end) {
  for (al_annex **at = &session->annexes; *at;) {
    if (is_end || (*at)->kind->goes_down)
      drop(at);
    else
      at = &(*at)->next;
  }
}
