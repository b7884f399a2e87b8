/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "transport/bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transport/output.h"

#define FIRST_FRAME_MAX 8192 /* of what we send before tuning */

#define NO_MEMORY "there is not enough memory for the connection"
#define NO_ROOM "there is not enough memory for a frame"

typedef struct bytes_port {
  al_port port;
  amqp_connection_state_t decoder;
  al_output in, out;
  int frame_max;
  bool is_down;
} bytes_port;

static void down(bytes_port *self, al_code code, const char *why) {
  if (self->is_down) return;
  self->is_down = true;
  self->port.code = code;
  snprintf(self->port.why, sizeof self->port.why, "%s", why);
}

static void bytes_send_header(al_port *port) {
  static const uint8_t header[] = {'A',
                                   'M',
                                   'Q',
                                   'P',
                                   0,
                                   AMQP_PROTOCOL_VERSION_MAJOR,
                                   AMQP_PROTOCOL_VERSION_MINOR,
                                   AMQP_PROTOCOL_VERSION_REVISION};
  bytes_port *self = (bytes_port *)port;
  if (!al_output_append(&self->out, header, sizeof header)) down(self, AL_NO_MEMORY, NO_MEMORY);
}

static void bytes_send(al_port *port, const amqp_frame_t *frame) {
  bytes_port *self = (bytes_port *)port;
  if (self->is_down) return; /* nothing follows what was left out */
  if (!al_output_frame(&self->out, frame, self->frame_max)) down(self, AL_NO_MEMORY, NO_ROOM);
}

static al_port_state bytes_next(al_port *port, amqp_frame_t *frame) {
  bytes_port *self = (bytes_port *)port;
  while (self->in.end > self->in.start) {
    amqp_bytes_t bytes = {.len = self->in.end - self->in.start, .bytes = self->in.bytes + self->in.start};
    int used = amqp_handle_input(self->decoder, bytes, frame);
    if (used == AMQP_STATUS_NO_MEMORY)
      down(self, AL_NO_MEMORY, NO_MEMORY);
    else if (used < 0)
      down(self, AL_PROTOCOL, "the peer does not speak AMQP 0-9-1");
    if (used < 0) return AL_PORT_DOWN; /* the decoder is spent */
    al_output_consume(&self->in, (size_t)used);
    if (frame->frame_type != 0) return AL_PORT_FRAME;
  }
  return self->is_down ? AL_PORT_DOWN : AL_PORT_MORE;
}

static void bytes_release(al_port *port, amqp_channel_t channel) {
  amqp_maybe_release_buffers_on_channel(((bytes_port *)port)->decoder, channel);
}

static void bytes_tune(al_port *port, int channel_max, int frame_max) {
  bytes_port *self = (bytes_port *)port;
  self->frame_max = frame_max;
  if (amqp_tune_connection(self->decoder, channel_max, frame_max, 0) != AMQP_STATUS_OK)
    down(self, AL_NO_MEMORY, NO_MEMORY);
}

static void bytes_flush(al_port *port) { (void)port; }

static void bytes_close(al_port *port) {
  bytes_port *self = (bytes_port *)port;
  amqp_destroy_connection(self->decoder);
  al_output_free(&self->in);
  al_output_free(&self->out);
  free(self);
}

static const al_port_kind bytes_kind = {.is_fetched = true,
                                        .send_header = bytes_send_header,
                                        .send = bytes_send,
                                        .next = bytes_next,
                                        .release = bytes_release,
                                        .tune = bytes_tune,
                                        .flush = bytes_flush,
                                        .close = bytes_close};

al_port *al_bytes_port(void) {
  bytes_port *self = calloc(1, sizeof *self);
  if (!self) return NULL;
  self->port.kind = &bytes_kind;
  self->frame_max = FIRST_FRAME_MAX;
  self->decoder = amqp_new_connection();
  if (self->decoder) return &self->port;
  free(self);
  return NULL;
}

void al_bytes_feed(al_port *port, const void *bytes, size_t length) {
  bytes_port *self = (bytes_port *)port;
  port->heard = true;
  if (self->is_down || al_output_append(&self->in, bytes, length)) return; /* no gap is read over */
  down(self, AL_NO_MEMORY, NO_MEMORY);
}

void al_bytes_down(al_port *port, al_code code, const char *why) { down((bytes_port *)port, code, why); }

const void *al_bytes_output(const al_port *port, size_t *length) {
  const al_output *out = &((const bytes_port *)port)->out;
  *length = out->end - out->start;
  return *length > 0 ? out->bytes + out->start : NULL; /* to NULL not even nothing may be added */
}

void al_bytes_sent(al_port *port, size_t length) { al_output_consume(&((bytes_port *)port)->out, length); }
