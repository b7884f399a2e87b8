/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * What the native transport offers beside amqplocks.h: its clock, and the look for a fork. */
#ifndef AL_TRANSPORT_NATIVE_H
#define AL_TRANSPORT_NATIVE_H

#include "amqplocks.h"

int64_t al_native_now(void);         /* CLOCK_BOOTTIME, in nanoseconds */
bool al_native_forked(al_session *); /* this process is not the one that opened the session */

/* Brings the session up to date before an operation begins: the time, and news that has already arrived. */
void al_native_touch(al_session *);

#endif
