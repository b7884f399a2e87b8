/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Does a queue exist? ("Determining Queue Existence".) A mandatory publish to the default exchange, with confirms on,
 * is returned if the queue is absent and then acknowledged; only acknowledged if it is present; nacked if it exists but
 * refuses or is going away. A batch of questions is written at once and answered in one round trip. Confirms come out
 * of order and many at a time, and a return carries no delivery tag, so a return is matched by its message id, a
 * counter that is never used twice on a connection. (A permit, which has a message id for life, has the counter in its
 * correlation id.)
 *
 * The messages expire at once, so a plain queue made by other software, without x-max-length=0, keeps none of them.
 *
 * While the broker does not read publishers (connection.blocked), or denies publishing, the same question is asked by
 * passive declares, on channels of the holder: it never publishes, so it is never blocked. A "no" costs its channel. */
#ifndef AL_CORE_SESSION_PROBE_H
#define AL_CORE_SESSION_PROBE_H

#include "core/session/prober.h"

typedef struct al_probes al_probes;

/* Writes the name of the queue that question `index` is about. */
typedef void al_probe_name(const void *context, size_t index, char out[AL_NAME_SIZE]);

#define AL_PASSIVE_CHANNELS 16

/* A batch of questions, part of the operation that asks them. */
struct al_probes {
  al_asker asker; /* first */
  al_op *op;      /* stepped whenever `pending` has become 0 */
  al_message message;
  al_probing probing;
  al_probe_name *name;
  const void *context;
  al_answer *answers;
  size_t count, size, pending;
  char text[160]; /* the broker's words about the last DENIED or UNKNOWN */

  struct al_passive {
    al_probes *batch;
    al_channel *channel; /* NULL: free */
    size_t index;
  } passive[AL_PASSIVE_CHANNELS];
  bool is_passive, is_published;
  size_t passive_next; /* the next question to be asked passively */
};

/* Asks `count` questions by publishing `message`, or passively if that is a probe and `probing` says so; answers stand in batch->answers when batch->pending is 0. False: no memory or no channel, and
 * the operation has failed. The link needed must be open. */
bool al_probes_begin(al_probes *batch, al_op *op, al_message message, al_probing probing, size_t count,
                     al_probe_name *name, const void *context);

/* Lets go of a batch under way. */
void al_probes_cancel(al_probes *batch);
void al_probes_free(al_probes *batch);

/* Fails the operation for an answer that decides nothing (DENIED, UNKNOWN). True if it was such an answer. */
bool al_probes_undecided(al_probes *batch, size_t index);

#endif
