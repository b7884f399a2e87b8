/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * What the core must not know and has to be told: the time (al_system_now(), of amqplocks.h), something to begin chance
 * with, who we are. */
#ifndef AL_TRANSPORT_SYSTEM_H
#define AL_TRANSPORT_SYSTEM_H

#include "amqplocks.h"

double al_system_wall(void); /* seconds since the epoch */

/* al_session_new(), with the system's randomness and, where the settings have no name, one by program, process and host. */
al_session *al_system_session(const al_settings *settings, al_session *lender);

#endif
