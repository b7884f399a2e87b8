/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Names of queues. Every queue of a lock N is N and a suffix, no suffix is the end of another, slot numbers are digits
 * and tickets lower-case hexadecimal: read from its end, a queue's name gives back its kind and N, so two locks of any
 * kinds and names never meet in a queue. */
#ifndef AL_CORE_BASE_NAME_H
#define AL_CORE_BASE_NAME_H

#include "amqplocks.h"

/* A name for a lock leaves room for the longest suffix: "-scratch-" and a ticket. */
#define AL_SUFFIX_MAX (9 + AL_TICKET_SIZE - 1)
#define AL_LOCK_NAME_MAX (AL_NAME_SIZE - 1 - AL_SUFFIX_MAX)

void al_name_slot(char out[AL_NAME_SIZE], const char *name, int slot);   /* A[slot]: N-3-A */
void al_name_holder(char out[AL_NAME_SIZE], const char *name, int slot); /* B[slot]: N-3-B */
void al_name_admin(char out[AL_NAME_SIZE], const char *name);            /* N-admin */
void al_name_bell(char out[AL_NAME_SIZE], const char *name);             /* the doorbell: N-bell */
void al_name_scratch(char out[AL_NAME_SIZE], const char *name, const char *ticket);

void al_name_permits(char out[AL_NAME_SIZE], const char *name); /* N.semaphore, as others call it too */
void al_name_permit_count(char out[AL_NAME_SIZE],
                          const char *name);                        /* a mark per permit: N.semaphore-count */
void al_name_marks(char out[AL_NAME_SIZE], const char *permits);    /* the same, of N.semaphore itself */
void al_name_token_admin(char out[AL_NAME_SIZE], const char *name); /* N-tokenadmin */

void al_name_mutex(char out[AL_NAME_SIZE], const char *name); /* N-mutex */
void al_name_mutex_bell(char out[AL_NAME_SIZE],
                        const char *name); /* N-mutexbell; N-mutex-bell is another lock's */

void al_name_bolt(char out[AL_NAME_SIZE], const char *queue); /* Q-bolt, beside the exclusive queue Q */

void al_name_reader(char out[AL_NAME_SIZE], const char *name, const char *ticket);
void al_name_readers(char out[AL_NAME_SIZE], const char *name); /* what every reader is bound with */
void al_name_door(char out[AL_NAME_SIZE],
                  const char *name); /* N-writer: a writer is in it, or waits for readers */
void al_name_rw_bell(char out[AL_NAME_SIZE], const char *name); /* N-rwbell */

#endif
