/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Heartbeats of an open link, and the pulse.
 *
 * Every half heartbeat in which nothing else was sent, a heartbeat frame is sent, so that the broker knows that we are
 * alive. If nothing came from the broker for two heartbeats, the connection counts as dead.
 *
 * A heartbeat from the broker does not prove that our own bytes arrive. Only an answer does. So while locks are held
 * the link makes a round trip every half heartbeat, the pulse, and its answer prolongs the time for which locks are
 * certain (al_link_certain_until in link.h). The pulse has a channel of its own; when no channel is left it uses any
 * open one, as its request (a ping, channel.h) disturbs no owner. */
#ifndef AL_CORE_WIRE_HEARTBEAT_H
#define AL_CORE_WIRE_HEARTBEAT_H

#include "core/wire/link.h"

/* True if nothing came from the broker for two heartbeats. */
bool al_heartbeat_is_missed(const al_link *link);

/* Makes the pulse's round trip, if it is due. */
void al_heartbeat_pulse(al_link *link);

/* Sends a heartbeat frame, if nothing was sent for half a heartbeat. */
void al_heartbeat_send(al_link *link);

/* Call this before al_connection_pump() if the transport may call that late. If the link was not pumped for a
 * heartbeat, bytes of the broker may lie unread, so silence proves nothing. The broker then gets one more heartbeat
 * before it counts as silent. */
void al_heartbeat_excuse(al_link *link, int64_t pumped_at);

/* Returns when one of the functions above has something to do next. */
int64_t al_heartbeat_wake(const al_link *link);

#endif
