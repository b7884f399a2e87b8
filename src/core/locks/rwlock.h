/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The readers–writer lock: any number of readers are inside, or one writer. A writer first shuts the door, and then
 * waits until the last reader has left.
 *
 * The door is the exclusive queue N-writer. It is shut while that queue exists. A reader is an exclusive queue of its
 * own, N-reader-<ticket>, bound to amq.direct with the key N-readers.
 *
 *   reader   writes: its queue, bound      then checks: does the door exist?           if so it steps back
 *   writer   writes: the door              then checks: is a queue bound by the key?   if so it waits, the door shut
 *
 * So one of them sees the other if they come at the same time (docs/specification.md, 4.1). The reader checks on the
 * channel on which it wrote (holder_queue.h). The writer publishes to amq.direct with the flag mandatory: if the
 * message is returned, there is no reader. One message does for any number of readers. The writer may publish through
 * another node of the broker, whose view lags; therefore it writes something through that node before (barrier.h).
 *
 * A client that leaves tells those that it may have kept out. A writer rings the bell N-rwbell (bell.h), where
 * readers and writers wait until the door opens. A reader, also one that stepped back, sends a message to the door,
 * and so tells the writer that waits behind it. A client that dies tells nobody, but its queues go with it: so the
 * writer behind the door also checks by itself, at growing intervals. */
#ifndef AL_CORE_LOCKS_RWLOCK_H
#define AL_CORE_LOCKS_RWLOCK_H

#include "core/locks/queue_search.h"
#include "core/queue/barrier.h"

struct al_rwlock {
  al_resource resource; /* first */
};

typedef struct al_rw_acquire {
  al_acquire acquire;     /* first */
  al_queue_search search; /* the door */

  /* The writer, behind the door. */
  al_barrier barrier;
  al_probes readers;
  al_backoff wait;
  bool is_sure;        /* the questions under way were asked behind the barrier */
  bool met_readers;    /* the last count found readers */
  int64_t blind_since; /* since when readers could not be counted; AL_NEVER */
  int woken;           /* own->woken when the questions under way were asked */
} al_rw_acquire;

/* For both kinds. */
#define AL_RW_DEADLOCK "this connection already reads or writes \"%s\""
/* False: this session reads or writes already, and the operation has failed with AL_DEADLOCK. */
bool al_rw_may_enter(al_acquire *self);
void al_rw_search_begin(al_acquire *self);
al_search_state al_rw_search_poll(al_acquire *self);
void al_rw_cancel(al_acquire *self);
void al_rw_free(al_acquire *self);
void al_rw_door_name(const void *acquire, size_t index, char out[AL_NAME_SIZE]);

/* Begins to claim a reader's queue of the lock `name`. `door`: the door that must be open; NULL for the writer that
 * has shut it itself. */
al_exclusive *al_rw_claim_reader(al_op *op, const char *name, const char *door);

/* True for a writer that has shut the door. */
bool al_rw_is_behind_door(const al_acquire *self);
/* The door is shut: counts readers until there are none, and goes on with the acquire. */
void al_rw_count_readers(al_acquire *self);

extern const al_acquire_kind al_rw_reader, al_rw_writer; /* reader.c, writer.c */

#endif
