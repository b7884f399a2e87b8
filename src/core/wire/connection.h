/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The life of a link's connection: it is attached, read, kept alive with heartbeats, and closed or lost. link.h has
 * the states.
 *
 * Each frame that is read is dispatched. Frames of the handshake go to handshake.h. Other frames of channel 0 are
 * handled here. All others go to their channel (channel.h). When the connection is over, each channel's owner is
 * notified once. */
#ifndef AL_CORE_WIRE_CONNECTION_H
#define AL_CORE_WIRE_CONNECTION_H

#include "core/wire/link.h"

/* Frees the memory of the link. It must be down, or never have had a connection. */
void al_connection_free(al_link *link);

/* Begins the handshake on a connected port, which from now on belongs to the link. The handshake must be done by
 * `deadline`. */
void al_connection_attach(al_link *link, al_port *port, int64_t now, int64_t deadline);

/* The transport could not connect. */
void al_connection_fail(al_link *link, al_code code, const char *why);

/* Reads and dispatches frames, checks heartbeats and deadlines, writes. */
void al_connection_pump(al_link *link, int64_t now);

/* Returns when to pump next although nothing has arrived, or when a wanted connection becomes due. A connection that
 * is due already does not count: the transport opens it, and pumping would not help. */
int64_t al_connection_wake(const al_link *link);

/* Sends connection.close. The link goes DOWN with AL_CLOSED when the broker has answered or `deadline` has passed. */
void al_connection_close(al_link *link, int64_t deadline);

/* The link goes DOWN at once. Nothing is sent to the broker. */
void al_connection_abort(al_link *link, al_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
