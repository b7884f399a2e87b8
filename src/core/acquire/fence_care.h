/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * What administrators do with a fence (queue/draw.h), without holding its lock. */
#ifndef AL_CORE_ACQUIRE_FENCE_CARE_H
#define AL_CORE_ACQUIRE_FENCE_CARE_H

#include "core/session/op.h"

/* Begins to delete the fence. The operation is done when it is gone, or was not there. The next fence begins with the
 * time: its numbers are larger, if the clocks of the clients that make fences agree. NULL: no memory. */
al_op *al_fence_forget(al_session *session, const char *fence);

/* Begins to make the fence anew if it is damaged, or has lost its message, also where a policy may have removed it.
 * Leaves alone a fence that is in order, or is not there. */
al_op *al_fence_mend(al_session *session, const char *fence);

#endif
