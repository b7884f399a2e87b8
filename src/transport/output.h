/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Encodes frames into the bytes to send, with rabbitmq-c. Both transports queue these bytes here, so sending never
 * blocks. */
#ifndef AL_TRANSPORT_OUTPUT_H
#define AL_TRANSPORT_OUTPUT_H

#include "core/base/amqp.h"
#include "core/wire/port.h"

typedef struct al_output {
  uint8_t *bytes;
  size_t start, end, size; /* bytes[start..end) are still to be sent */
} al_output;

/* Appends raw bytes. Returns false if there is no memory. */
bool al_output_append(al_output *output, const void *bytes, size_t length);

/* Appends a frame. Returns false, and appends nothing, if there is no memory, or if it is longer than every broker
 * accepts: ours are far smaller. */
bool al_output_frame(al_output *output, const amqp_frame_t *frame);

/* Removes the first `length` bytes, which were sent. */
void al_output_consume(al_output *output, size_t length);
void al_output_free(al_output *output);

#endif
