/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "transport/frames.h"

#include <stdio.h>

#define FIRST_FRAME_MAX 8192 /* of frames to send before tuning */

bool al_frames_init(al_frames *frames, const al_port_kind *kind) {
  *frames = (al_frames){.port.kind = kind, .frame_max = FIRST_FRAME_MAX, .codec = amqp_new_connection()};
  return frames->codec != NULL;
}

void al_frames_free(al_frames *frames) {
  amqp_destroy_connection(frames->codec);
  al_output_free(&frames->in.bytes);
  al_output_free(&frames->out);
}

void al_frames_down(al_frames *frames, al_code code, const char *why) {
  if (frames->is_down) return;
  frames->is_down = true;
  frames->port.code = code;
  snprintf(frames->port.why, sizeof frames->port.why, "%s", why);
}

al_port_state al_frames_next(al_frames *frames, amqp_frame_t *frame) {
  al_code code;
  al_port_state state = al_input_next(&frames->in, frames->codec, frame, &code);
  if (state == AL_PORT_DOWN)
    al_frames_down(frames, code,
                   code == AL_NO_MEMORY ? AL_FRAMES_NO_MEMORY : "the peer does not speak AMQP 0-9-1");
  return state == AL_PORT_MORE && frames->is_down ? AL_PORT_DOWN : state;
}

void al_frames_feed(al_frames *frames, const void *bytes, size_t length) {
  frames->port.heard = true;
  if (frames->is_down) return; /* bytes are missing before these, so they cannot be decoded */
  if (!al_output_append(&frames->in.bytes, bytes, length))
    al_frames_down(frames, AL_NO_MEMORY, AL_FRAMES_NO_MEMORY);
}

void al_frames_send_header(al_port *port) {
  static const uint8_t header[] = {'A',
                                   'M',
                                   'Q',
                                   'P',
                                   0,
                                   AMQP_PROTOCOL_VERSION_MAJOR,
                                   AMQP_PROTOCOL_VERSION_MINOR,
                                   AMQP_PROTOCOL_VERSION_REVISION};
  al_frames *frames = (al_frames *)port;
  if (!al_output_append(&frames->out, header, sizeof header))
    al_frames_down(frames, AL_NO_MEMORY, AL_FRAMES_NO_MEMORY);
}

void al_frames_send(al_port *port, const amqp_frame_t *frame) {
  al_frames *frames = (al_frames *)port;
  if (frames->is_down) return; /* no frame follows one that was left out */
  if (!al_output_frame(&frames->out, frame, frames->frame_max))
    al_frames_down(frames, AL_NO_MEMORY, "there is not enough memory for a frame");
}

void al_frames_release(al_port *port, amqp_channel_t channel) {
  amqp_maybe_release_buffers_on_channel(((al_frames *)port)->codec, channel);
}

void al_frames_tune(al_port *port, int channel_max, int frame_max) {
  al_frames *frames = (al_frames *)port;
  frames->frame_max = frame_max;
  if (amqp_tune_connection(frames->codec, channel_max, frame_max, 0) != AMQP_STATUS_OK)
    al_frames_down(frames, AL_NO_MEMORY, AL_FRAMES_NO_MEMORY);
}
