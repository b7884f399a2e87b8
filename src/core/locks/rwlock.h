/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The readers–writer lock, as a mutex and a doorman: any number of readers are inside, or one writer, who shuts the door
 * first and then waits until the last reader has left.
 *
 * The door is the exclusive queue N-writer, shut while it exists. A reader is an exclusive queue of its own, N-reader-<ticket>,
 * bound to amq.direct with the key N-readers.
 *
 *   reader   writes: its queue, bound      then looks: is the door there?            if so it steps back
 *   writer   writes: the door              then looks: is anybody bound by the key?  if so it waits, the door being shut
 *
 * Each writes before it looks, and neither looks at anything older than its own write, so that of a reader and a writer who
 * come at the same time at least one sees the other. The reader looks on the channel it wrote on (exclusive.h). The writer
 * publishes, mandatory, to amq.direct: returned, there is no reader, however many there were. It may do so through another
 * node of the broker, whose view lags; therefore it writes something there before (barrier.h).
 *
 * Whoever leaves tells those it may have kept out: a writer the bell, N-rwbell, where readers and writers wait until the
 * door opens; a reader, also one that stepped back, the writer who waits behind the door, by a message to the door. Who dies
 * tells nobody, but its queues go with it: the writer behind the door looks for itself as well, at growing intervals. */
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
  bool is_sure;        /* the barrier lies before the questions under way */
  bool met_readers;    /* by the last count */
  int64_t blind_since; /* since then nobody could be asked; AL_NEVER */
  int woken;           /* what our door had been told when they were asked */
} al_rw_acquire;

/* For both kinds. */
#define AL_RW_DEADLOCK "this very connection reads or writes \"%s\" already"
bool al_rw_may_enter(
    al_acquire *self); /* false: this session reads or writes already, and it has failed with AL_DEADLOCK */
void al_rw_search_begin(al_acquire *self);
al_search_state al_rw_search_poll(al_acquire *self);
void al_rw_cancel(al_acquire *self);
void al_rw_free(al_acquire *self);
void al_rw_door_name(const void *acquire, size_t index, char out[AL_NAME_SIZE]);

/* Begins to claim a reader's queue of rwlock `name`. `door`: to be gone through, or NULL for whoever shut it. */
al_exclusive *al_rw_claim_reader(al_op *op, const char *name, const char *door);

extern const al_acquire_kind al_rw_reader, al_rw_writer; /* reader.c, writer.c */

#endif
