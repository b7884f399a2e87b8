/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The origin of a quorum queue of permits: did this library make the queue, or did somebody else? The library made it
 * if a queue of marks (N.semaphore-count) stands beside it. A permit is a message in N.semaphore that a holder keeps
 * unacknowledged. A mark is a message that stands for one permit that should exist.
 *
 * The release of a quorum permit depends on the origin (permit.h), and must not wait for an answer. So the session
 * asks ahead, in the background, by a passive declare on a channel that holds nothing. It asks once for each queue
 * and connection, as soon as the connection both takes permits from the queue and has or claims any other lock, in
 * whichever order that comes about. A connection that only takes permits never asks.
 *
 *   NOTED ─ other locks ─> ASKED ─ declare-ok, or 404 as its node is down ─> OURS
 *                            └──── 404, or any refusal ────────────────────> FOREIGN ─ a minute later ─> ASKED
 *
 * The origin of a queue that went is forgotten, as another queue may come by its name. When the connection ends, all
 * origins are forgotten. At most sixteen queues are remembered, the latest. An origin that is not known counts as
 * foreign. */
#ifndef AL_CORE_HOLD_ORIGIN_H
#define AL_CORE_HOLD_ORIGIN_H

#include "amqplocks.h"

/* The session takes quorum permits from this queue; `is_beside`: and has or claims other locks. The holder must be
 * open. */
void al_origin_note(al_session *session, const char *queue, bool is_beside);

/* The session claims another lock: asks for the origins that were noted. */
void al_origins_ask(al_session *session);

/* True only if the broker has said so. */
bool al_origin_is_ours(const al_session *session, const char *queue);

/* The queue went. */
void al_origin_forget(al_session *session, const char *queue);

#endif
