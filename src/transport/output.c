/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "transport/output.h"

#include <stdlib.h>
#include <string.h>

#define FRAME_HEADER 7 /* type, channel, size */
#define FRAME_END 1
#define USUAL_FRAME 512 /* most frames are shorter; a connection keeps its buffer, so it is to be small */
#define KEEP_MOST 32768

static bool reserve(al_output *output, size_t more) {
  if (output->size - output->end >= more) return true;
  size_t used = output->end - output->start, size = output->size ? output->size : 1024;
  while (size < used + more) size *= 2;
  uint8_t *bytes = malloc(size);
  if (!bytes) return false;
  if (used > 0) memcpy(bytes, output->bytes + output->start, used);
  free(output->bytes);
  *output = (al_output){.bytes = bytes, .end = used, .size = size};
  return true;
}

bool al_output_append(al_output *output, const void *bytes, size_t length) {
  if (length == 0) return true;
  if (!reserve(output, length)) return false;
  memcpy(output->bytes + output->end, bytes, length);
  output->end += length;
  return true;
}

static void put(uint8_t *at, uint64_t number, int bytes) {
  for (int i = bytes - 1; i >= 0; i--, number >>= 8) at[i] = (uint8_t)number;
}

/* Returns the length, or a negative number if it does not fit. */
static int encode_payload(const amqp_frame_t *frame, uint8_t *at, size_t room) {
  int length;
  switch (frame->frame_type) {
    case AMQP_FRAME_METHOD:
      put(at, frame->payload.method.id, 4);
      length = amqp_encode_method(frame->payload.method.id, frame->payload.method.decoded,
                                  (amqp_bytes_t){.len = room - 4, .bytes = at + 4});
      return length < 0 ? length : length + 4;
    case AMQP_FRAME_HEADER:
      put(at, frame->payload.properties.class_id, 2);
      put(at + 2, 0, 2); /* "weight", unused */
      put(at + 4, frame->payload.properties.body_size, 8);
      length = amqp_encode_properties(frame->payload.properties.class_id, frame->payload.properties.decoded,
                                      (amqp_bytes_t){.len = room - 12, .bytes = at + 12});
      return length < 0 ? length : length + 12;
    case AMQP_FRAME_BODY:
      if (frame->payload.body_fragment.len > room) return -1;
      memcpy(at, frame->payload.body_fragment.bytes, frame->payload.body_fragment.len);
      return (int)frame->payload.body_fragment.len;
    default:
      return 0; /* a heartbeat has no payload */
  }
}

bool al_output_frame(al_output *output, const amqp_frame_t *frame) {
  size_t room = USUAL_FRAME;
  int length;
  uint8_t *at;
  for (;; room = AMQP_FRAME_MIN_SIZE) {
    if (!reserve(output, room)) return false;
    at = output->bytes + output->end;
    length = encode_payload(frame, at + FRAME_HEADER, room - FRAME_HEADER - FRAME_END);
    if (length >= 0) break;
    if (room == AMQP_FRAME_MIN_SIZE) return false;
  }
  put(at, frame->frame_type, 1);
  put(at + 1, frame->channel, 2);
  put(at + 3, (uint64_t)length, 4);
  at[FRAME_HEADER + length] = AMQP_FRAME_END;
  output->end += FRAME_HEADER + (size_t)length + FRAME_END;
  return true;
}

void al_output_consume(al_output *output, size_t length) {
  output->start += length;
  if (output->start < output->end) return;
  output->start = output->end = 0;
  if (output->size > KEEP_MOST) al_output_free(output); /* after a window of hundreds of probes */
}

void al_output_free(al_output *output) {
  free(output->bytes);
  *output = (al_output){0};
}
