/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * What the core gets from the operating system: the time (al_system_now() is in amqplocks.h), the seed of its random
 * numbers, and the name of a connection. */
#ifndef AL_TRANSPORT_SYSTEM_H
#define AL_TRANSPORT_SYSTEM_H

#include "amqplocks.h"

double al_system_wall(void); /* seconds since the epoch */

/* Calls al_session_new() with a random seed. If the settings have no name, the name is made of program, process and
 * host. Returns NULL if there is no memory. */
al_session *al_system_session(const al_settings *settings);

#endif
