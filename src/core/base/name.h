/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Names of queues. The name of every queue of a lock N is N and a suffix.
 *
 * Two locks of any kinds and names never have a queue name in common. The reason: no suffix is the end of another
 * suffix, slot numbers are digits, and tickets are lower-case hexadecimal. So a queue's name, read from its end,
 * tells its kind and N.
 *
 * Words used below:
 *   bell, doorbell   a queue of tokens: messages that each wake one waiter
 *   permits, marks   permits are the messages of a token semaphore; for each permit a mark is kept in a second queue,
 *                    so that the permits can be counted
 *   bolt             a queue beside an exclusive queue Q, declared with the name Q-bolt
 *   seal             a queue beside a mutex's queue Q that tells how the last lock ended, with the name Q-seal
 *   door             the queue of a readers-writer lock that a writer holds while it writes or waits for readers
 *   fence            the queue that the fencing tokens of a lock are drawn from: numbers that grow with each holder
 *   ticket           a random number that is used once (AL_TICKET_SIZE) */
#ifndef AL_CORE_BASE_NAME_H
#define AL_CORE_BASE_NAME_H

#include "amqplocks.h"

/* The longest suffix is "-scratch-" and a ticket. A lock's name must leave room for it. A reader's queue has no bolt,
 * for which there would be no room. */
#define AL_SUFFIX_MAX (9 + AL_TICKET_SIZE - 1)
#define AL_LOCK_NAME_MAX (AL_NAME_SIZE - 1 - AL_SUFFIX_MAX)

/* What stands behind a lock's name N in the names of its queues, or behind the name of a queue Q beside which another
 * one stands. */
typedef enum al_suffix {
  AL_SUFFIX_BELL,        /* a semaphore's doorbell: N-bell */
  AL_SUFFIX_ADMIN,       /* N-admin */
  AL_SUFFIX_MUTEX,       /* N-mutex */
  AL_SUFFIX_MUTEX_BELL,  /* N-mutexbell. N-mutex-bell would be the bell of a semaphore called N-mutex */
  AL_SUFFIX_FAST_MUTEX,  /* N-fastmutex */
  AL_SUFFIX_DOOR,        /* N-writer */
  AL_SUFFIX_READERS,     /* N-readers: no queue, but the routing key of every reader's binding (message.h) */
  AL_SUFFIX_RW_BELL,     /* N-rwbell */
  AL_SUFFIX_PERMITS,     /* N.semaphore: other software uses this name, too */
  AL_SUFFIX_TOKEN_ADMIN, /* N-tokenadmin */
  AL_SUFFIX_MANY,        /* the queue of a client that takes several slots at once (gather.h), and its bell */
  AL_SUFFIX_MANY_BELL,
  AL_SUFFIX_TOKEN_MANY, /* the same for permits */
  AL_SUFFIX_TOKEN_MANY_BELL,
  AL_SUFFIX_FENCE, /* a semaphore's fence: N-fence */
  AL_SUFFIX_MUTEX_FENCE,
  AL_SUFFIX_RW_FENCE,
  AL_SUFFIX_BESIDE,                  /* from here on: behind the name of a queue Q */
  AL_SUFFIX_BOLT = AL_SUFFIX_BESIDE, /* Q-bolt, beside the exclusive queue Q */
  AL_SUFFIX_SEAL,                    /* Q-seal, beside the queue of a mutex */
  AL_SUFFIX_MARKS,                   /* Q-count, beside the permits */
  AL_SUFFIX_FENCE_MAKER,             /* Q-maker: its holder makes the fence Q */
  AL_SUFFIX_FENCE_UNFINISHED,        /* Q-unfinished: the fence Q has no message yet */
  AL_SUFFIX_COUNT
} al_suffix;

void al_name(char out[AL_NAME_SIZE], al_suffix suffix, const char *name);

void al_name_slot(char out[AL_NAME_SIZE], const char *name, int slot);   /* A[slot]: N-3-A */
void al_name_holder(char out[AL_NAME_SIZE], const char *name, int slot); /* B[slot]: N-3-B */
void al_name_reader(char out[AL_NAME_SIZE], const char *name, const char *ticket);
void al_name_scratch(char out[AL_NAME_SIZE], const char *name, const char *ticket);

#endif
