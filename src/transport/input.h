/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Bytes on their way in, as the frames they are. rabbitmq-c decodes these, but for what no lock needs of a message and any
 * publisher can make as large as the broker lets him: its body, and the table of headers among its properties. Both are
 * thrown away as they arrive. So a foreign message costs no memory, whatever its size; and no stack, as rabbitmq-c decodes
 * a table within a table by recursion; and not the connection, which rabbitmq-c gives up over a frame larger than was agreed
 * on (RabbitMQ never splits the header of a message) or a table that is too deep. */
#ifndef AL_TRANSPORT_INPUT_H
#define AL_TRANSPORT_INPUT_H

#include "core/base/amqp.h"
#include "core/wire/port.h"
#include "transport/output.h"

typedef struct al_input {
  al_output bytes; /* came, and are not passed on yet: the frame under way first */
  uint64_t length; /* of the frame under way, without what is thrown away of it; 0: not known yet */
  size_t omit_at;  /* the place in that frame from which on bytes are thrown away, */
  uint64_t omit;   /* and how many there are still to come */
  uint32_t body;   /* of a body: how long it is */
  bool has_begun;  /* there was a frame before this one */
} al_input;

/* The next whole frame, valid until its channel's buffers are released in `codec`, which has decoded it. AL_PORT_DOWN: the
 * peer broke the protocol, or there is no memory, as `code` tells; nothing more can be read then. */
al_port_state al_input_next(al_input *input, amqp_connection_state_t codec, amqp_frame_t *frame,
                            al_code *code);

#endif
