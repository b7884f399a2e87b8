/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * What is remembered of a lock from one acquire to the next, so that it need not be asked again at once.
 *
 * A mutex or a readers–writer lock has a memory of its own. All semaphore objects of one name in one session have one
 * memory, which the session keeps when the last object is gone: a request in nginx makes a new object each time. A
 * session keeps the memories of 64 names; the one whose object was made longest ago is dropped first.
 *
 * Everything here may be wrong by now, as others change the semaphore: they resize it, delete it, or take the slot
 * that we had last. It only decides which slots a search asks for first, and what is not asked again for a minute. A
 * wrong memory costs a round trip, never more. When there is no semaphore of that name, all is forgotten.
 *
 *   recalled slots: the slots that this session won lately. A search takes the latest one off the list, so that no
 *   other search of this session begins there. A slot that is won is put back. A slot that this session still holds is
 *   left in the list. So, while others leave them alone, each caller of a session gets a slot that the session has
 *   released, and two sessions keep apart. */
#ifndef AL_CORE_ACQUIRE_MEMORY_H
#define AL_CORE_ACQUIRE_MEMORY_H

#include "core/session/session.h"

#define AL_RECALLED_MOST 16

typedef struct al_memory {
  int64_t bell_missed; /* when the doorbell was missing, or could not be consumed from */

  /* of a semaphore */
  int known;    /* slots seen in a row; 0 if none were counted yet */
  bool has_end; /* the row was seen to end behind them */
  int last;     /* the slot held last; 0 if none */
  /* The last slot was won where the search began, or next to that, and no race was lost since. */
  bool is_quiet;
  int recalled[AL_RECALLED_MOST], recalled_count; /* won lately, the latest last */

  int refs; /* of a memory that a session keeps: the session, and the objects */
} al_memory;

void al_memory_init(al_memory *memory);

/* The session's memory of the semaphore of this name, with one more reference. Call with the turn held. NULL: no
 * memory. */
al_memory *al_memory_of(al_session *session, const char *name);
void al_memory_leave(al_memory *memory);

/* There is no semaphore of that name. */
void al_memory_clear(al_memory *memory);

/* Takes the slot won latest off the list, if `is_meant` for it. Returns 0 if there is none. */
int al_memory_recall(al_memory *memory, bool (*is_meant)(const void *context, int slot), const void *context);

/* This session has won the slot. `is_quiet`: a search need not have looked farther. */
void al_memory_note_won(al_memory *memory, int slot, bool is_quiet);

#endif
