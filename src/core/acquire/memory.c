/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/acquire/memory.h"

#include <stdlib.h>
#include <string.h>

#include "core/session/annex.h"

#define LONG_AGO (-60 * AL_SECOND)

void al_memory_init(al_memory *memory) { *memory = (al_memory){.refs = 1, .bell_missed = LONG_AGO}; }

void al_memory_clear(al_memory *memory) {
  memory->bell_missed = LONG_AGO; /* an administrator makes the bell first, then the slots */
  memory->known = memory->last = memory->recalled_count = 0;
  memory->has_end = memory->is_quiet = false;
}

/* ---- of a session ----------------------------------------------------------------------------------------------- */

void al_memory_leave(al_memory *memory) {
  if (--memory->refs == 0) free(memory);
}

static void drop(void *thing) {
  al_memory *memory = *(al_memory **)thing;
  if (memory) al_memory_leave(memory);
}

/* Pointers, by the name of the semaphore: an object may have the memory for longer than the session. */
static const al_annex_kind memories = {.size = sizeof(al_memory *), .most = 64, .drop = drop};

al_memory *al_memory_of(al_session *session, const char *name) {
  al_memory **kept = al_annex_use(session, &memories, name);
  if (!kept) return NULL;
  if (!*kept && (*kept = malloc(sizeof **kept))) al_memory_init(*kept);
  if (*kept) (*kept)->refs++;
  return *kept;
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
