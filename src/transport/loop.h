/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Sessions for event loops: both links use the bytes transport (bytes.h), and the loop moves the bytes through sockets
 * of its own. The clock, the randomness and the detection of forks are the same as for native sessions. There is one
 * thread, so there is no lock around the session. */
#ifndef AL_TRANSPORT_LOOP_H
#define AL_TRANSPORT_LOOP_H

#include "amqplocks.h"

/* Returns NULL if there is no memory. */
al_session *al_loop_new(const al_settings *settings);

/* Processes the bytes that were fed in, runs pending operations, and queues the bytes to send. Returns after how many
 * nanoseconds to call it again if no bytes come: at least 0; AL_NEVER: only when bytes come. With `op` this is the time
 * for the caller that waits for this operation. With NULL it is the time for the session: one task of the loop should
 * then always be doing so. In a child of the process that made the session, it only fails `op` with AL_FORKED. */
int64_t al_loop_pump(al_session *session, al_op *op);

/* Returns the same time, and does nothing else. */
int64_t al_loop_wake(al_session *session, const al_op *op);

#endif
