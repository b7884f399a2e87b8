/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The file of a trace: that of the settings, or of $AMQPLOCKS_TRACE. Several processes may share it, as each line is
 * one write, which appends. */
#ifndef AL_TRANSPORT_TRACE_H
#define AL_TRANSPORT_TRACE_H

#include "amqplocks.h"

/* Traces a new session, if that is wanted. Returns false if there is no memory. */
bool al_trace_begin(al_session *session);

#endif
