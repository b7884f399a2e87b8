/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * What the native transport offers beside amqplocks.h. */
#ifndef AL_TRANSPORT_NATIVE_H
#define AL_TRANSPORT_NATIVE_H

#include "amqplocks.h"

/* al_session_abort(), and the end of the keeper and of the descriptor for polling. */
void al_native_retire(al_session *);

#endif
