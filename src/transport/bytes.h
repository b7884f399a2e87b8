/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The bytes transport: no socket at all. What arrives is fed in, what is to be sent is taken out, by whoever owns the
 * socket: an event loop, or a test. rabbitmq-c's decoder works on a connection state that has no socket. */
#ifndef AL_TRANSPORT_BYTES_H
#define AL_TRANSPORT_BYTES_H

#include "core/wire/port.h"

/* NULL: no memory. Owned by the link it is attached to. */
al_port *al_bytes_port(void);

/* Bytes from the peer, cut anywhere; copied. Without the memory for that the connection is over. */
void al_bytes_feed(al_port *port, const void *bytes, size_t length);

/* The peer is gone. */
void al_bytes_down(al_port *port, al_code code, const char *why);

/* What is to be sent, and how much of it was. */
const void *al_bytes_output(const al_port *port, size_t *length);
void al_bytes_sent(al_port *port, size_t length);

#endif
