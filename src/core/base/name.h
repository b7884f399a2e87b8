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

void al_name_slot(char out[AL_NAME_SIZE], const char *name, int slot);   /* A[slot]: N-3-A */
void al_name_holder(char out[AL_NAME_SIZE], const char *name, int slot); /* B[slot]: N-3-B */
void al_name_admin(char out[AL_NAME_SIZE], const char *name);            /* N-admin */
void al_name_bell(char out[AL_NAME_SIZE], const char *name); /* the semaphore's doorbell: N-bell */
void al_name_scratch(char out[AL_NAME_SIZE], const char *name, const char *ticket);

/* The permits: N.semaphore. Other software uses this name, too. */
void al_name_permits(char out[AL_NAME_SIZE], const char *name);
/* The marks: N.semaphore-count. */
void al_name_permit_count(char out[AL_NAME_SIZE], const char *name);
/* The marks as well, but made from the name of the permits' queue, N.semaphore. */
void al_name_marks(char out[AL_NAME_SIZE], const char *permits);
void al_name_token_admin(char out[AL_NAME_SIZE], const char *name); /* N-tokenadmin */

void al_name_mutex(char out[AL_NAME_SIZE], const char *name); /* N-mutex */
/* N-mutexbell. It is not N-mutex-bell, which is the bell of a semaphore called N-mutex. */
void al_name_mutex_bell(char out[AL_NAME_SIZE], const char *name);

void al_name_fast_mutex(char out[AL_NAME_SIZE], const char *name); /* N-fastmutex */

/* The queues of a client that takes several at once (gather.h): N-many or N-tokenmany, and the bell of each. */
void al_name_many(char out[AL_NAME_SIZE], const char *name);
void al_name_many_bell(char out[AL_NAME_SIZE], const char *name);
void al_name_token_many(char out[AL_NAME_SIZE], const char *name);
void al_name_token_many_bell(char out[AL_NAME_SIZE], const char *name);

void al_name_bolt(char out[AL_NAME_SIZE], const char *queue); /* Q-bolt, beside the exclusive queue Q */

void al_name_reader(char out[AL_NAME_SIZE], const char *name, const char *ticket);
/* N-readers: the routing key with which the queue of every reader is bound to AL_READERS_EXCHANGE (message.h). */
void al_name_readers(char out[AL_NAME_SIZE], const char *name);
void al_name_door(char out[AL_NAME_SIZE], const char *name);    /* N-writer */
void al_name_rw_bell(char out[AL_NAME_SIZE], const char *name); /* N-rwbell */

void al_name_fence(char out[AL_NAME_SIZE], const char *name);       /* of a semaphore: N-fence */
void al_name_mutex_fence(char out[AL_NAME_SIZE], const char *name); /* N-mutexfence */
void al_name_rw_fence(char out[AL_NAME_SIZE], const char *name);    /* N-rwfence */
void al_name_fence_maker(char out[AL_NAME_SIZE],
                         const char *fence); /* F-maker: its holder makes the fence F */
void al_name_fence_unfinished(char out[AL_NAME_SIZE],
                              const char *fence); /* F-unfinished: F has no message yet */

#endif
