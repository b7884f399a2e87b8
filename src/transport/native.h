/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The part of the native transport that is not in amqplocks.h. */
#ifndef AL_TRANSPORT_NATIVE_H
#define AL_TRANSPORT_NATIVE_H

#include "amqplocks.h"

/* Calls al_session_abort(), stops the keeper, and closes the descriptor for polling. In a child process it only calls
 * al_session_abort(). */
void al_native_retire(al_session *);

#endif
