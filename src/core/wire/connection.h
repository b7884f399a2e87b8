/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The life of a link's connection: it is attached, read, kept alive with heartbeats, closed, or lost. link.h has the states.
 *
 * Reading dispatches each frame: the handshake's (handshake.h) and those of channel 0 here, all others to their channel
 * (channel.h). When the connection is over, each channel's owner is told, once. */
#ifndef AL_CORE_WIRE_CONNECTION_H
#define AL_CORE_WIRE_CONNECTION_H

#include "core/wire/link.h"

/* Frees what the link still has; it must be down, or never have been up. */
void al_connection_free(al_link *link);

/* Takes a connected port (and owns it) and begins the handshake, which must be over by `deadline`. */
void al_connection_attach(al_link *link, al_port *port, int64_t now, int64_t deadline);

/* The outside could not connect. */
void al_connection_fail(al_link *link, al_code code, const char *why);

/* Reads, dispatches, keeps heartbeats and deadlines, writes. */
void al_connection_pump(al_link *link, int64_t now);

/* To be called before pumping where the outside reads and may do so late. If it has not pumped for a heartbeat, not having
 * heard the broker proves nothing: what came lies unread, and silence is judged a heartbeat later. */
void al_connection_excuse(al_link *link, int64_t pumped_at);

/* The earliest time at which pumping is worthwhile although nothing came, or at which a connection is due that is not
 * due yet: what is due already is the outside's business, and no reason to pump. */
int64_t al_connection_wake(const al_link *link);

/* connection.close, politely; the link goes DOWN with AL_CLOSED when it is answered or `deadline` has passed. */
void al_connection_close(al_link *link, int64_t deadline);

/* Down at once, without a word to the broker. */
void al_connection_abort(al_link *link, al_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
