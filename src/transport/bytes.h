/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The bytes transport: a port without a socket. The owner of the socket, an event loop or a test, feeds in the bytes
 * that it received, takes out the bytes to send, and sends them. rabbitmq-c decodes on a connection state that has no
 * socket. */
#ifndef AL_TRANSPORT_BYTES_H
#define AL_TRANSPORT_BYTES_H

#include "core/wire/port.h"

/* Returns NULL if there is no memory. The link that the port is attached to owns it. */
al_port *al_bytes_port(void);

/* Feeds in bytes from the peer, which may be cut anywhere. They are copied. If there is no memory for the copy, the
 * connection ends with AL_NO_MEMORY. */
void al_bytes_feed(al_port *port, const void *bytes, size_t length);

/* Ends the connection: the peer is gone. If it has ended already, the first reason stays. */
void al_bytes_down(al_port *port, al_code code, const char *why);

/* Returns the bytes to send, and their number in `length`. NULL: there are none. */
const void *al_bytes_output(const al_port *port, size_t *length);

/* The first `length` of these bytes were sent. */
void al_bytes_sent(al_port *port, size_t length);

#endif
