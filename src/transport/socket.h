/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A port over a socket of rabbitmq-c, TCP or TLS: the connection of a native session. */
#ifndef AL_TRANSPORT_SOCKET_H
#define AL_TRANSPORT_SOCKET_H

#include "core/wire/port.h"
#include "transport/fork.h"

/* Connects to `address` (numeric) and the port of `settings`, and returns a port. TLS expects a certificate of the host
 * of `settings`, or of their server name. It takes at most `allowed` nanoseconds. On failure it returns NULL, with the
 * reason in `code` (AL_UNREACHABLE, AL_TLS, AL_LIMIT, AL_NO_MEMORY) and `why`. In a child of the process that connected,
 * the port neither reads nor writes, nor closes the connection. `fork` must outlive the port. */
al_port *al_socket_connect(const al_settings *settings, const char *address, int64_t allowed,
                           const al_fork *fork, al_code *code, char why[256]);

int al_socket_fd(const al_port *port);
bool al_socket_has_unsent(const al_port *port); /* poll for POLLOUT */
bool al_socket_reads(const al_port *port);      /* poll for POLLIN; false: TLS must write first */

#endif
