/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The system's resolver. It blocks, and has no deadline but its own. */
#ifndef AL_TRANSPORT_RESOLVER_H
#define AL_TRANSPORT_RESOLVER_H

#include "amqplocks.h"
#include "core/wire/addresses.h"

/* Returns the addresses of a host, to be freed by free(), of which there is at least one. On failure it returns NULL,
 * with the reason in `code` (AL_UNREACHABLE, AL_LIMIT, AL_NO_MEMORY) and `why`. */
al_addresses *al_resolve(const char *host, al_code *code, char why[256]);

#endif
