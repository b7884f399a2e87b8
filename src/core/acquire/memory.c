/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/acquire/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_MOST 64
#define LONG_AGO (-60 * AL_SECOND)

void al_memory_init(al_memory *memory) {
  *memory = (al_memory){.refs = 1, .bell_missed = LONG_AGO};
  al_boldness_init(&memory->boldness);
}

void al_memory_clear(al_memory *memory) {
  memory->bell_missed = LONG_AGO; /* an administrator makes the bell first, then the slots */
  memory->known = memory->last = memory->recalled_count = 0;
  memory->has_end = memory->is_quiet = false;
}

/* ---- of a session ----------------------------------------------------------------------------------------------- */

void al_memory_leave(al_memory *memory) {
  if (--memory->refs == 0) free(memory);
}

static void drop(al_memory **at) {
  al_memory *memory = *at;
  *at = memory->next;
  al_memory_leave(memory);
}

static void forget_all(al_session *session) {
  while (session->memories) drop(&session->memories);
}

/* Drops the memories behind the first ones. */
static void drop_rest(al_session *session) {
  al_memory **at = &session->memories;
  for (int i = 0; i < NAMES_MOST && *at; i++) at = &(*at)->next;
  while (*at) drop(at);
}

static al_memory *add(al_session *session, const char *name) {
  al_memory *memory = malloc(sizeof *memory);
  if (!memory) return NULL;
  al_memory_init(memory);
  snprintf(memory->name, sizeof memory->name, "%s", name);
  session->forget_memories = forget_all;
  return memory;
}

al_memory *al_memory_of(al_session *session, const char *name) {
  al_memory **at = &session->memories;
  while (*at && strcmp((*at)->name, name) != 0) at = &(*at)->next;
  al_memory *memory = *at;
  if (memory)
    *at = memory->next;
  else
    memory = add(session, name);
  if (!memory) return NULL;
  memory->next = session->memories;
  session->memories = memory;
  memory->refs++;
  drop_rest(session);
  return memory;
}

/* ---- slots ------------------------------------------------------------------------------------------------------ */

static void take_off(al_memory *memory, int at) {
  memory->recalled_count--;
  memmove(memory->recalled + at, memory->recalled + at + 1,
          (size_t)(memory->recalled_count - at) * sizeof *memory->recalled);
}

int al_memory_recall(al_memory *memory, bool (*is_meant)(const void *context, int slot),
                     const void *context) {
  for (int i = memory->recalled_count - 1; i >= 0; i--) {
    int slot = memory->recalled[i];
    if (!is_meant(context, slot)) continue;
    take_off(memory, i);
    return slot;
  }
  return 0;
}

void al_memory_note_won(al_memory *memory, int slot, bool is_quiet) {
  memory->last = slot;
  memory->is_quiet = is_quiet;
  for (int i = memory->recalled_count - 1; i >= 0; i--)
    if (memory->recalled[i] == slot) take_off(memory, i);
  if (memory->recalled_count == AL_RECALLED_MOST) take_off(memory, 0);
  memory->recalled[memory->recalled_count++] = slot;
}
