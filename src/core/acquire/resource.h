/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * What is acquired: the object that a user of the library has in hand, a semaphore, a mutex or a readers–writer lock.
 * What need not be asked again at once is in its memory (memory.h). */
#ifndef AL_CORE_ACQUIRE_RESOURCE_H
#define AL_CORE_ACQUIRE_RESOURCE_H

#include "core/acquire/memory.h"
#include "core/hold/holder_queue.h"

typedef struct al_resource {
  int refs; /* the owner outside, and acquires under way */
  al_session *session;
  char name[AL_NAME_SIZE], bell[AL_NAME_SIZE];
  int max_attempts;
  al_probing probing;
  char fence[AL_NAME_SIZE]; /* the queue of fencing tokens (fence_token.h); "": locks have none */
  int64_t retain;           /* a lock is retained until so long after its claim (holder_queue.h); 0: never */
  bool has_no_bell;         /* there is no doorbell (bell.h), and none is to be asked for */
  int64_t squat_checked;    /* when we last checked for squatters (squatter.h) */
  al_memory *memory;        /* `own`, or one that the session keeps */
  al_memory own;
  al_exclusive *former; /* the last claim, if waiters make the bell; NULL */
  int64_t awaited_at;   /* when somebody was known to wait there, before that claim */
} al_resource;

void al_resource_init(al_resource *resource, al_session *session, const char *name, int max_attempts,
                      al_probing probing);
/* From now on it has the memory that the session keeps for this name. Without memory for it, it has its own. */
void al_resource_share_memory(al_resource *resource);
void al_resource_drop(al_resource *resource); /* frees it with the last reference; NULL is fine */

/* The doorbell is missing: for a minute no acquire asks for it. */
void al_resource_miss_bell(al_resource *resource);
bool al_resource_may_have_bell(const al_resource *resource);

/* If waiters make the bell: somebody waits; or our own claim will be told of those that do. */
void al_resource_note_awaited(al_resource *resource);
void al_resource_remember(al_resource *resource, al_exclusive *claim);
/* within the last minute, so others may still wait */
bool al_resource_was_awaited(const al_resource *resource);

/* True if it is time to check for squatters: once a minute at most. */
bool al_resource_may_be_squatted(const al_resource *resource);
/* `is_known`: nothing is to be asked again before. */
void al_resource_note_squat_check(al_resource *resource, bool is_known);

#endif
