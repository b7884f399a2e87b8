/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * AMQP 0-9-1 frames as the fuzzing targets read and write them. It is written from the specification, and shares no
 * code with the library or with rabbitmq-c, so that it judges the library's output independently. Reading is strict:
 * every deviation from the specification ends the run. */
#ifndef FUZZ_WIRE_H
#define FUZZ_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Ends the run with a message that says what was wrong, so that the fuzzer keeps the input. */
#define CHECK(condition, ...) ((condition) ? (void)0 : wire_fail(__FILE__, __LINE__, __VA_ARGS__))
_Noreturn void wire_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define WIRE_FIELDS 8

#define WIRE_ID(class_id, id) ((class_id) << 16 | (id))
enum {
  WIRE_START = WIRE_ID(10, 10),
  WIRE_START_OK = WIRE_ID(10, 11),
  WIRE_TUNE = WIRE_ID(10, 30),
  WIRE_TUNE_OK = WIRE_ID(10, 31),
  WIRE_OPEN = WIRE_ID(10, 40),
  WIRE_OPEN_OK = WIRE_ID(10, 41),
  WIRE_CLOSE = WIRE_ID(10, 50),
  WIRE_CLOSE_OK = WIRE_ID(10, 51),
  WIRE_BLOCKED = WIRE_ID(10, 60),
  WIRE_UNBLOCKED = WIRE_ID(10, 61),
  WIRE_CHANNEL_OPEN = WIRE_ID(20, 10),
  WIRE_CHANNEL_OPEN_OK = WIRE_ID(20, 11),
  WIRE_CHANNEL_CLOSE = WIRE_ID(20, 40),
  WIRE_CHANNEL_CLOSE_OK = WIRE_ID(20, 41),
  WIRE_DECLARE = WIRE_ID(50, 10),
  WIRE_DECLARE_OK = WIRE_ID(50, 11),
  WIRE_BIND = WIRE_ID(50, 20),
  WIRE_BIND_OK = WIRE_ID(50, 21),
  WIRE_DELETE = WIRE_ID(50, 40),
  WIRE_DELETE_OK = WIRE_ID(50, 41),
  WIRE_QOS = WIRE_ID(60, 10),
  WIRE_QOS_OK = WIRE_ID(60, 11),
  WIRE_CONSUME = WIRE_ID(60, 20),
  WIRE_CONSUME_OK = WIRE_ID(60, 21),
  WIRE_CANCEL = WIRE_ID(60, 30),
  WIRE_CANCEL_OK = WIRE_ID(60, 31),
  WIRE_PUBLISH = WIRE_ID(60, 40),
  WIRE_RETURN = WIRE_ID(60, 50),
  WIRE_DELIVER = WIRE_ID(60, 60),
  WIRE_GET = WIRE_ID(60, 70),
  WIRE_GET_OK = WIRE_ID(60, 71),
  WIRE_GET_EMPTY = WIRE_ID(60, 72),
  WIRE_ACK = WIRE_ID(60, 80),
  WIRE_NACK = WIRE_ID(60, 120),
  WIRE_SELECT = WIRE_ID(85, 10),
  WIRE_SELECT_OK = WIRE_ID(85, 11)
};

enum { WIRE_METHOD = 1, WIRE_HEADER = 2, WIRE_BODY = 3, WIRE_HEARTBEAT = 8 };

/* A field: a number, or text, or a table's bytes without its length. */
typedef struct wire_value {
  uint64_t number;
  const void *bytes;
  size_t length;
} wire_value;

#define WIRE_NUMBER(n) ((wire_value){.number = (uint64_t)(n)})
#define WIRE_TEXT(t) ((wire_value){.bytes = (t), .length = strlen(t)})

/* Fields by letters: o octet, h short, l long, q long long, b bit, s short string, S long string, t table. */
typedef struct wire_method {
  unsigned class_id, id;
  const char *name, *fields;
} wire_method;

typedef struct wire_frame {
  int type, channel;
  size_t size; /* of the whole frame */
  const wire_method *method;
  wire_value fields[WIRE_FIELDS];
  uint64_t body_size;               /* of a header */
  wire_value id, correlation, kind; /* message_id, correlation_id, type */
  wire_value headers;
} wire_frame;

typedef struct wire_buffer {
  uint8_t *bytes;
  size_t length, size;
} wire_buffer;

size_t wire_method_count(void);
const wire_method *wire_method_at(size_t index);
const wire_method *wire_method_by(unsigned id); /* one of those above */

/* Reads the frame at the front. False: it is not complete. `most`: the size of a whole frame at most. */
bool wire_read(const uint8_t *bytes, size_t length, size_t most, wire_frame *frame);

void wire_append(wire_buffer *out, const void *bytes, size_t length);
void wire_consume(wire_buffer *out, size_t length);
void wire_free(wire_buffer *out);
void wire_frame_of(wire_buffer *out, int type, int channel, const void *payload, size_t length);
void wire_say(wire_buffer *out, int channel, const wire_method *method, const wire_value *fields);

/* Appends a number to the bytes of a table. */
void wire_number_field(wire_buffer *table, const char *key, int64_t value);

/* A content header with nothing but headers, the bytes of a table. */
void wire_fence_header(wire_buffer *out, int channel, wire_value headers);

/* A content header with message_id, correlation_id and type, each left out if it is empty. */
void wire_header(wire_buffer *out, int channel, int class_id, uint64_t body_size, wire_value id,
                 wire_value correlation, wire_value kind);

#endif
