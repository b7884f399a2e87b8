/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "transport/bytes.h"

#include <stdlib.h>

#include "transport/frames.h"

static al_port_state bytes_next(al_port *port, amqp_frame_t *frame) {
  return al_frames_next((al_frames *)port, frame);
}

static void bytes_flush(al_port *port) { (void)port; }

static void bytes_close(al_port *port) {
  al_frames_free((al_frames *)port);
  free(port);
}

static const al_port_kind bytes_kind = {.is_fetched = true,
                                        .send_header = al_frames_send_header,
                                        .send = al_frames_send,
                                        .next = bytes_next,
                                        .flush = bytes_flush,
                                        .close = bytes_close};

al_port *al_bytes_port(void) {
  al_frames *frames = malloc(sizeof *frames);
  if (!frames) return NULL;
  al_frames_init(frames, &bytes_kind);
  return &frames->port;
}

void al_bytes_feed(al_port *port, const void *bytes, size_t length) {
  al_frames_feed((al_frames *)port, bytes, length);
}

void al_bytes_down(al_port *port, al_code code, const char *why) {
  al_frames_down((al_frames *)port, code, why);
}

const void *al_bytes_output(const al_port *port, size_t *length) {
  const al_output *out = &((const al_frames *)port)->out;
  *length = out->end - out->start;
  return *length > 0 ? out->bytes + out->start : NULL; /* in C, even adding 0 to NULL is undefined */
}

void al_bytes_sent(al_port *port, size_t length) { al_output_consume(&((al_frames *)port)->out, length); }
