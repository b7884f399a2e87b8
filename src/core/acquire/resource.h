/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * What is acquired, as those who hold it in their hands see it: a semaphore, a mutex, a readers–writer lock. It remembers
 * from one acquire to the next what need not be asked again at once. */
#ifndef AL_CORE_ACQUIRE_RESOURCE_H
#define AL_CORE_ACQUIRE_RESOURCE_H

#include "core/hold/exclusive.h"

typedef struct al_resource {
  int refs; /* the owner outside, and acquires under way */
  al_session *session;
  char name[AL_NAME_SIZE], bell[AL_NAME_SIZE];
  int max_attempts;
  al_probing probing;
  bool is_silent;        /* there is no doorbell, and none is to be asked for */
  int64_t squat_checked; /* when squatters were last looked for */
  int64_t bell_missed;   /* when there was no doorbell, or none to be listened to */
  al_exclusive *former;  /* the last claim, where those who wait make the bell; NULL */
  int64_t awaited_at;    /* when somebody was known to wait there, before that claim */
} al_resource;

void al_resource_init(al_resource *resource, al_session *session, const char *name, int max_attempts,
                      al_probing probing);
void al_resource_drop(al_resource *resource); /* frees it with the last reference; NULL is fine */

/* The doorbell is missing, and for a while nobody asks for it. */
void al_resource_miss_bell(al_resource *resource);
bool al_resource_may_have_bell(const al_resource *resource);

/* Where those who wait make the bell: somebody does, or our own claim will hear of those who do. */
void al_resource_note_awaited(al_resource *resource);
void al_resource_remember(al_resource *resource, al_exclusive *claim);
bool al_resource_was_awaited(const al_resource *resource); /* lately, so others may still wait */

/* Squatters are looked for now and then: whether it is time. */
bool al_resource_may_be_squatted(const al_resource *resource);
void al_resource_note_squat_check(al_resource *resource);

#endif
