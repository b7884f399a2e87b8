/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The AMQP 0-9-1 handshake in frames: start, start-ok, tune, tune-ok and open, open-ok. It is the same for every
 * transport.
 *
 * Each refusal gets its own code. RabbitMQ answers wrong credentials with connection.close 403, because this client
 * announces authentication_failure_close. It answers an open that it refuses with 530. */
#ifndef AL_CORE_WIRE_HANDSHAKE_H
#define AL_CORE_WIRE_HANDSHAKE_H

#include "core/wire/link.h"

/* Handles one method frame on channel 0 while the link is not OPEN: answers it, and moves the link's state. Returns
 * AL_OK. Otherwise the caller must end the connection with the code returned and the text in `why`. */
al_code al_handshake(al_link *link, const amqp_frame_t *frame, char why[AL_MESSAGE_SIZE]);

/* Maps the broker's connection.close to a code, depending on the state that the link was in. */
al_code al_handshake_refusal(al_link_state state, const amqp_connection_close_t *close);

#endif
