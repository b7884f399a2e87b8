/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "transport/frames.h"

#include <stdio.h>

void al_frames_init(al_frames *frames, const al_port_kind *kind) {
  *frames = (al_frames){.port.kind = kind};
  al_input_init(&frames->in);
}

void al_frames_free(al_frames *frames) {
  al_input_free(&frames->in);
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
  al_port_state state = al_input_next(&frames->in, frame, &code);
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
  if (!al_output_frame(&frames->out, frame))
    al_frames_down(frames, AL_NO_MEMORY, "there is not enough memory for a frame");
}
