/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Decodes incoming bytes into frames. rabbitmq-c decodes methods and the properties of messages. Its own connection
 * (amqp_connection_state_t) is not used for that: it takes 128 KiB for its input, and 64 KiB for the first frame.
 *
 * Two parts of a message are discarded as they arrive: its body, and the table of headers among its properties, of
 * which only a few integers are kept (headers.h). No lock needs the rest, and any publisher can make it as large as the
 * broker allows. Without it a foreign message of any size costs
 *
 * - no memory;
 * - no stack: rabbitmq-c decodes a table within a table by recursion;
 * - no connection: rabbitmq-c fails over a frame that is larger than the agreed frame_max, or a table that is too deep.
 *   RabbitMQ never splits the header of a message over frames. */
#ifndef AL_TRANSPORT_INPUT_H
#define AL_TRANSPORT_INPUT_H

#include "core/base/amqp.h"
#include "core/wire/port.h"
#include "transport/output.h"

typedef struct al_input {
  al_output bytes;  /* have come and are not decoded yet; the current frame first */
  uint64_t length;  /* of the current frame, without its discarded bytes; 0: not known yet */
  size_t omit_at;   /* the offset in that frame of the first discarded byte, */
  uint64_t omit;    /* and how many bytes are still to be discarded */
  uint32_t body;    /* the length of a body */
  bool is_decoded;  /* the current frame was returned: the next call discards it */
  bool has_begun;   /* the current frame is not the first */
  amqp_pool_t pool; /* what rabbitmq-c decoded the current frame to */
} al_input;

void al_input_init(al_input *input);
void al_input_free(al_input *input);

/* Decodes the next whole frame. It is valid until the next call. Returns AL_PORT_MORE if no whole frame has come, and
 * AL_PORT_DOWN if the peer broke the protocol (`code` is AL_PROTOCOL) or there is no memory (AL_NO_MEMORY). After
 * AL_PORT_DOWN nothing more can be decoded. */
al_port_state al_input_next(al_input *input, amqp_frame_t *frame, al_code *code);

#endif
