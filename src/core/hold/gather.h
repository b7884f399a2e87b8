/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A gather: an operation that acquires several slots or permits of one semaphore, or none (al_acquire_options.count). It
 * does so by other operations, one after the other (docs/specification.md, 2.6):
 *
 *   entering the gate ──> taking, `count` times ──> leaving the gate ──> verifying those that are not certain ──> done
 *
 * The gate is a mutex that only gathers take. So two gathers never wait for what the other one has taken. Clients
 * that acquire one go on meanwhile. While a gather waits for the next one, it holds those before.
 *
 * If there are fewer than `count`, also after a shrink, the gather fails with AL_LIMIT. If it loses the gate or a lock
 * that it has, it fails with AL_LOST. However it fails, all is given back. If the connection ends, or the process, the
 * broker takes all back. */
#ifndef AL_CORE_HOLD_GATHER_H
#define AL_CORE_HOLD_GATHER_H

#include "core/session/op.h"

/* `from` is the semaphore. */
typedef struct al_gather_kind {
  const char *unit; /* "slot", for messages */
  void (*use)(void *from);
  void (*leave)(void *from);
  bool (*is_holder)(const void *from);                        /* this session holds one of them */
  al_op *(*enter)(void *from, const al_acquire_options *how); /* begins to acquire the gate */
  al_op *(*take)(void *from, const al_acquire_options *how);  /* begins to acquire one */
  size_t (*seen)(
      const al_op *take); /* how many there are, as this acquire of one knows; 0: it does not. Or NULL */
  al_op *(*count)(const void *from); /* asks how many there are (al_op_count(); 0: unknown). Or NULL */
} al_gather_kind;

/* True if such an acquire begins by al_gather_begin(). */
bool al_gather_is_wanted(const al_acquire_options *options);

/* `name`: of the semaphore. NULL: no memory. */
al_op *al_gather_begin(al_session *session, const char *name, const al_gather_kind *kind, void *from,
                       const al_acquire_options *options);

#endif
