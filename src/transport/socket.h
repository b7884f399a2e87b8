/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A port over rabbitmq-c's own sockets. */
#ifndef AL_TRANSPORT_SOCKET_H
#define AL_TRANSPORT_SOCKET_H

#include "core/wire/port.h"
#include "transport/fork.h"

/* Connects, for at most `patience` nanoseconds besides what the resolver takes, and gives a port; NULL: `code` and `why`
 * tell. In a child of the process that connected the port neither reads, writes nor says goodbye; `fork` must outlive
 * it. */
al_port *al_socket_connect(const al_settings *settings, int64_t patience, const al_fork *fork, al_code *code,
                           char why[256]);

int al_socket_fd(const al_port *port);
bool al_socket_has_unsent(const al_port *port); /* which leaves as soon as the descriptor can be written to */
bool al_socket_reads(const al_port *port);      /* what comes; false: only once TLS has written */

#endif
