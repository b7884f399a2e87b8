/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * What the core must not know and has to be told: the time (al_system_now(), of amqplocks.h), something to begin chance
 * with, who we are. */
#ifndef AL_TRANSPORT_SYSTEM_H
#define AL_TRANSPORT_SYSTEM_H

#include "amqplocks.h"

double al_system_wall(void); /* seconds since the epoch */
uint64_t al_system_seed(void);
void al_system_name(al_settings *settings); /* by program, process and host, unless it has a name */

#endif
