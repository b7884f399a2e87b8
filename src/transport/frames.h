/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The part that the ports of both transports have in common: frames as the bytes of one connection, on their way
 * in and out. Moving these bytes is the transport's part. */
#ifndef AL_TRANSPORT_FRAMES_H
#define AL_TRANSPORT_FRAMES_H

#include "core/wire/port.h"
#include "transport/input.h"
#include "transport/output.h"

#define AL_FRAMES_NO_MEMORY "there is not enough memory for the connection"

/* The beginning of either transport's port. */
typedef struct al_frames {
  al_port port;
  amqp_connection_state_t codec;
  al_input in;
  al_output out;
  int frame_max; /* of the frames we send */
  bool is_down;
} al_frames;

/* False: no memory, and nothing is to be freed. */
bool al_frames_init(al_frames *frames, const al_port_kind *kind);
void al_frames_free(al_frames *frames);

/* The connection is over; the first reason counts. */
void al_frames_down(al_frames *frames, al_code code, const char *why);

/* The next frame of what has come; when there is none, and the connection is over, AL_PORT_DOWN. */
al_port_state al_frames_next(al_frames *frames, amqp_frame_t *frame);

/* Bytes have come; they are copied. */
void al_frames_feed(al_frames *frames, const void *bytes, size_t length);

/* See al_port_kind. */
void al_frames_send_header(al_port *port);
void al_frames_send(al_port *port, const amqp_frame_t *frame);
void al_frames_release(al_port *port, amqp_channel_t channel);
void al_frames_tune(al_port *port, int channel_max, int frame_max);

#endif
