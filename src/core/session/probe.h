/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Asks whether queues exist (docs/specification.md, 1.3).
 *
 * A question is a mandatory publish to the default exchange, on the prober, with confirms on:
 *   the queue is absent                          the message is returned, and then acknowledged
 *   the queue is present                         the message is acknowledged
 *   the queue exists but refuses or is going     the message is nacked
 *
 * A batch of questions is written at once and answered in one round trip. prober.h tells how returns and confirms are
 * matched to the questions.
 *
 * The messages expire at once. So a plain queue made by other software, without x-max-length=0, keeps none of them.
 *
 * While the broker does not read publishers (connection.blocked), or denies publishing, the same question is asked by
 * passive declares on channels of the holder. The holder never publishes, so it is never blocked. Each negative
 * answer closes its channel. */
#ifndef AL_CORE_SESSION_PROBE_H
#define AL_CORE_SESSION_PROBE_H

#include "core/base/ids.h"
#include "core/session/prober.h"

typedef struct al_probes al_probes;

/* Writes the name of the queue of question `index`. */
typedef void al_probe_name(const void *context, size_t index, char out[AL_NAME_SIZE]);

#define AL_PASSIVE_CHANNELS 16

/* A batch of questions, part of the operation that asks them. */
struct al_probes {
  al_asker asker; /* first */
  al_op *op;      /* its step is called whenever `pending` has become 0 */
  al_message message;
  al_probing probing;
  al_probe_name *name;
  const void *context;
  al_ids *ids; /* of the permits to be published, as many as it has; NULL: each has a new one */
  al_answer *answers;
  size_t count, size, pending;
  char text[160]; /* the reason of the last answer that was DENIED or UNKNOWN */

  struct al_passive {
    al_probes *batch;
    al_channel *channel; /* NULL: free */
    size_t index;
  } passive[AL_PASSIVE_CHANNELS];
  bool is_passive;
  size_t passive_next; /* index of the next question to be asked passively */
};

/* Asks `count` questions by publishing `message`, or passively if `message` is a probe and `probing` says so. The
 * answers are in batch->answers when batch->pending is 0. The link that is used must be open (al_probing_needs).
 * Returns false if the operation has failed: no memory, no channel, or the link is blocked or lost. */
bool al_probes_begin(al_probes *batch, al_op *op, al_message message, al_probing probing, size_t count,
                     al_probe_name *name, const void *context);

void al_probes_cancel(al_probes *batch);
void al_probes_free(al_probes *batch);

/* If answer `index` decides nothing (DENIED, UNKNOWN), fails the operation and returns true. */
bool al_probes_undecided(al_probes *batch, size_t index);

#endif
