/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A frame consists of type (1 byte), channel (2), size (4), as many bytes as `size` says, and an end mark. The
 * discarded bytes are cut out as they come, and the frame's size is rewritten. So rabbitmq-c sees a frame that is small
 * and whole:
 *
 *   a message's header   class (2) weight (2) body size (8) flags (2) [content type] [encoding] [table] others
 *                        of the table a few integers stay (headers.h)
 *   a body               becomes empty, and its length is kept in al_input */
#include "transport/input.h"

#include <string.h>

#include "transport/headers.h"

#define HEAD 7 /* type, channel, size */
#define END 1
#define PROTOCOL_HEADER 8 /* the length of one */
#define FLAGS (HEAD + 12) /* the offset of the flags of a message's properties */
#define MORE_FLAGS 1      /* this bit says that another word of flags follows */
#define METHOD_LEAST 4    /* the size of a method without arguments */
#define HEADER_LEAST 12   /* the size of a message's header without flags */
#define FIRST_MOST 65536  /* bytes of the first frame: the server's properties may be long */
#define FRAME_MOST 8192   /* of another, without its discarded bytes; brokers send far smaller ones */
#define POOL_PAGE 512 /* larger parts of a frame, such as the server's properties, are allocated one by one */

void al_input_init(al_input *input) {
  *input = (al_input){0};
  init_amqp_pool(&input->pool, POOL_PAGE);
}

void al_input_free(al_input *input) {
  empty_amqp_pool(&input->pool);
  al_output_free(&input->bytes);
}

static uint64_t number(const uint8_t *at, int bytes) {
  uint64_t number = 0;
  for (int i = 0; i < bytes; i++) number = number << 8 | at[i];
  return number;
}

static void put(uint8_t *at, uint32_t number) {
  for (int i = 3; i >= 0; i--, number >>= 8) at[i] = (uint8_t)number;
}

static uint8_t *frame_at(const al_input *input) { return input->bytes.bytes + input->bytes.start; }

static size_t there(const al_input *input) { return input->bytes.end - input->bytes.start; }

/* Marks `omit` bytes from `place` on as discarded, in the current frame, whose size was `size`. */
static void cut(al_input *input, size_t place, uint32_t omit, uint32_t size) {
  put(frame_at(input) + 3, size - omit);
  input->omit_at = place;
  input->omit = omit;
  input->length = HEAD + (uint64_t)(size - omit) + END;
}

/* Returns the offset of the table's length in the header of a message. 0: there is no table; -1: too little has
 * come. */
static int find_table(const uint8_t *at, size_t there, uint32_t size) {
  size_t place = FLAGS + 2, end = HEAD + (size_t)size;
  if (place > end) return 0;
  if (place > there) return -1;
  uint32_t flags = (uint32_t)number(at + FLAGS, 2);
  if (number(at + HEAD, 2) != AMQP_BASIC_CLASS || !(flags & AMQP_BASIC_HEADERS_FLAG)) return 0;
  for (uint32_t flag = AMQP_BASIC_CONTENT_TYPE_FLAG; flag > AMQP_BASIC_HEADERS_FLAG; flag >>= 1) {
    if (!(flags & flag)) continue;
    if (place < end && place >= there) return -1;
    if (place < end) place += 1 + (size_t)at[place];
  }
  if (place + 4 > end) return 0;
  return place + 4 > there ? -1 : (int)place;
}

/* RabbitMQ reads one word of flags whatever this bit says, and passes on what a publisher wrote. rabbitmq-c would read
 * the following bytes as flags and fail at the rest, and the connection would be lost. */
static void end_flags(al_input *input, uint32_t size) {
  if (HEAD + (size_t)size >= FLAGS + 2) frame_at(input)[FLAGS + 1] &= (uint8_t)~MORE_FLAGS;
}

/* Returns false if too little has come. */
static bool measure_header(al_input *input, uint32_t size) {
  uint8_t *at = frame_at(input);
  int place = find_table(at, there(input), size);
  if (place < 0) return false;
  end_flags(input, size);
  uint32_t table = place > 0 ? (uint32_t)number(at + place, 4) : 0;
  if (place == 0 || place + 4 + (uint64_t)table > HEAD + (uint64_t)size) {
    cut(input, HEAD, 0, size); /* rabbitmq-c judges a malformed frame */
    return true;
  }
  bool is_long = table > AL_HEADERS_MOST;
  if (there(input) < (size_t)place + 4 + (is_long ? AL_HEADERS_DISCARDED : table)) return false;
  uint32_t kept = AL_HEADERS_DISCARDED;
  if (is_long)
    al_headers_discard(at + place + 4);
  else
    kept = (uint32_t)al_headers_keep(at + place + 4, table);
  put(at + place, kept);
  cut(input, (size_t)place + 4 + kept, table - kept, size);
  return true;
}

static bool is_protocol_header(const al_input *input) {
  return !input->has_begun && memcmp(frame_at(input), "AMQP", 4) == 0;
}

/* Finds out how long the frame is, and which bytes to discard. Returns false if too little has come. */
static bool measure(al_input *input) {
  if (there(input) < HEAD) return false;
  const uint8_t *at = frame_at(input);
  uint32_t size = (uint32_t)number(at + 3, 4);
  if (is_protocol_header(input)) {
    input->length = PROTOCOL_HEADER;
    input->omit = 0;
    return true;
  }
  if (at[0] == AMQP_FRAME_HEADER) return measure_header(input, size);
  input->body = size;
  cut(input, HEAD, at[0] == AMQP_FRAME_BODY ? size : 0, size);
  return true;
}

/* Discards those of the marked bytes that have come. Moves the few bytes before them. */
static void omit(al_input *input) {
  size_t come = there(input) > input->omit_at ? there(input) - input->omit_at : 0;
  if (come > input->omit) come = (size_t)input->omit;
  if (come == 0) return;
  uint8_t *at = frame_at(input);
  memmove(at + come, at, input->omit_at);
  al_output_consume(&input->bytes, come);
  input->omit -= come;
}

static int decode_header(al_input *input, const uint8_t *at, size_t size, amqp_frame_t *frame) {
  frame->payload.properties.class_id = (uint16_t)number(at, 2);
  frame->payload.properties.body_size = number(at + 4, 8);
  amqp_bytes_t encoded = {.len = size - HEADER_LEAST, .bytes = (void *)(at + HEADER_LEAST)};
  return amqp_decode_properties(frame->payload.properties.class_id, &input->pool, encoded,
                                &frame->payload.properties.decoded);
}

static int decode_method(al_input *input, const uint8_t *at, size_t size, amqp_frame_t *frame) {
  frame->payload.method.id = (amqp_method_number_t)number(at, 4);
  amqp_bytes_t encoded = {.len = size - METHOD_LEAST, .bytes = (void *)(at + METHOD_LEAST)};
  return amqp_decode_method(frame->payload.method.id, &input->pool, encoded, &frame->payload.method.decoded);
}

static void decode_protocol(const uint8_t *at, amqp_frame_t *frame) {
  *frame = (amqp_frame_t){.frame_type = AL_PROTOCOL_HEADER};
  frame->payload.protocol_header.transport_low = at[5];
  frame->payload.protocol_header.protocol_version_major = at[6];
}

/* Returns a status of rabbitmq-c, below 0 if the frame cannot be decoded. */
static int decode(al_input *input, amqp_frame_t *frame) {
  const uint8_t *at = frame_at(input), *payload = at + HEAD;
  if (is_protocol_header(input)) {
    decode_protocol(at, frame);
    return AMQP_STATUS_OK;
  }
  size_t size = (size_t)input->length - HEAD - END;
  if (payload[size] != AMQP_FRAME_END) return AMQP_STATUS_BAD_AMQP_DATA;
  *frame = (amqp_frame_t){.frame_type = at[0], .channel = (amqp_channel_t)number(at + 1, 2)};
  switch (frame->frame_type) {
    case AMQP_FRAME_METHOD:
      return size < METHOD_LEAST ? AMQP_STATUS_BAD_AMQP_DATA : decode_method(input, payload, size, frame);
    case AMQP_FRAME_HEADER:
      return size < HEADER_LEAST ? AMQP_STATUS_BAD_AMQP_DATA : decode_header(input, payload, size, frame);
    case AMQP_FRAME_BODY:
      frame->payload.body_fragment.len = input->body;
      return AMQP_STATUS_OK;
    case AMQP_FRAME_HEARTBEAT:
      return AMQP_STATUS_OK;
    default:
      frame->frame_type = 0;
      return AMQP_STATUS_OK;
  }
}

static void discard_decoded(al_input *input) {
  if (!input->is_decoded) return;
  recycle_amqp_pool(&input->pool);
  al_output_consume(&input->bytes, (size_t)input->length);
  input->length = 0;
  input->is_decoded = false;
  input->has_begun = true;
}

al_port_state al_input_next(al_input *input, amqp_frame_t *frame, al_code *code) {
  for (;;) {
    discard_decoded(input);
    if (input->length == 0 && !measure(input)) return AL_PORT_MORE;
    *code = AL_PROTOCOL;
    if (input->length > (input->has_begun ? FRAME_MOST : FIRST_MOST)) return AL_PORT_DOWN;
    omit(input);
    if (input->omit > 0 || there(input) < input->length) return AL_PORT_MORE;
    int status = decode(input, frame);
    if (status == AMQP_STATUS_NO_MEMORY) *code = AL_NO_MEMORY;
    if (status < 0) return AL_PORT_DOWN;
    input->is_decoded = true;
    if (frame->frame_type != 0) return AL_PORT_FRAME; /* 0: a type that AMQP does not have */
  }
}
