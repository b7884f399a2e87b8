/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Frames on their way out, as the bytes of the wire, encoded by rabbitmq-c. Both transports queue here, so sending never
 * waits. */
#ifndef AL_TRANSPORT_OUTPUT_H
#define AL_TRANSPORT_OUTPUT_H

#include "core/base/amqp.h"
#include "core/wire/port.h"

typedef struct al_output {
  uint8_t *bytes;
  size_t start, end, size; /* bytes[start..end) are still to go */
} al_output;

/* Appends raw bytes. False: no memory. */
bool al_output_append(al_output *output, const void *bytes, size_t length);

/* Appends a frame of at most `frame_max` bytes. False: no memory, or it does not fit; nothing is appended then. */
bool al_output_frame(al_output *output, const amqp_frame_t *frame, int frame_max);

void al_output_consume(al_output *output, size_t length);
void al_output_free(al_output *output);

#endif
