/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The AMQP 0-9-1 handshake in frames, the same for every transport: start, start-ok, tune, tune-ok and open, open-ok.
 * Every refusal is told apart: RabbitMQ answers wrong credentials with connection.close 403 because we announce
 * authentication_failure_close, and an open that it refuses with 530. */
#ifndef AL_CORE_WIRE_HANDSHAKE_H
#define AL_CORE_WIRE_HANDSHAKE_H

#include "core/wire/link.h"

/* One method frame on channel 0 while the link is not OPEN: answers it, and moves the link's state. AL_OK, or the code and
 * the words with which the caller has to end the connection. */
al_code al_handshake(al_link *link, const amqp_frame_t *frame, char why[AL_MESSAGE_SIZE]);

/* Maps the broker's connection.close to our codes, according to how far the link had come. */
al_code al_handshake_refusal(al_link_state state, const amqp_connection_close_t *close);

#endif
