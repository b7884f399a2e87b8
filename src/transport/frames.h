/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The common part of the ports of both transports: it decodes the bytes of one connection into frames, and encodes
 * frames into bytes. The transport moves these bytes. */
#ifndef AL_TRANSPORT_FRAMES_H
#define AL_TRANSPORT_FRAMES_H

#include "core/wire/port.h"
#include "transport/input.h"
#include "transport/output.h"

#define AL_FRAMES_NO_MEMORY "there is not enough memory for the connection"

/* The first member of either transport's port. */
typedef struct al_frames {
  al_port port;
  al_input in;
  al_output out;
  bool is_down;
} al_frames;

void al_frames_init(al_frames *frames, const al_port_kind *kind);
void al_frames_free(al_frames *frames);

/* Ends the connection. If it has ended already, the first reason stays. */
void al_frames_down(al_frames *frames, al_code code, const char *why);

/* Returns the next of the frames that have come. If there is none, and the connection has ended, returns
 * AL_PORT_DOWN. */
al_port_state al_frames_next(al_frames *frames, amqp_frame_t *frame);

/* Feeds in bytes that have come. They are copied. */
void al_frames_feed(al_frames *frames, const void *bytes, size_t length);

/* Members of al_port_kind; see there. */
void al_frames_send_header(al_port *port);
void al_frames_send(al_port *port, const amqp_frame_t *frame);

#endif
