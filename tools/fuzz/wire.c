/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "wire.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRAME_END 0xCE
#define DEEPEST 8

static const wire_method methods[] = {{10, 10, "connection.start", "ootSS"},
                                      {10, 11, "connection.start-ok", "tsSs"},
                                      {10, 20, "connection.secure", "S"},
                                      {10, 21, "connection.secure-ok", "S"},
                                      {10, 30, "connection.tune", "hlh"},
                                      {10, 31, "connection.tune-ok", "hlh"},
                                      {10, 40, "connection.open", "ssb"},
                                      {10, 41, "connection.open-ok", "s"},
                                      {10, 50, "connection.close", "hshh"},
                                      {10, 51, "connection.close-ok", ""},
                                      {10, 60, "connection.blocked", "s"},
                                      {10, 61, "connection.unblocked", ""},
                                      {10, 70, "connection.update-secret", "Ss"},
                                      {10, 71, "connection.update-secret-ok", ""},
                                      {20, 10, "channel.open", "s"},
                                      {20, 11, "channel.open-ok", "S"},
                                      {20, 20, "channel.flow", "b"},
                                      {20, 21, "channel.flow-ok", "b"},
                                      {20, 40, "channel.close", "hshh"},
                                      {20, 41, "channel.close-ok", ""},
                                      {40, 10, "exchange.declare", "hssbbbbb"},
                                      {40, 11, "exchange.declare-ok", ""},
                                      {50, 10, "queue.declare", "hsbbbbbt"},
                                      {50, 11, "queue.declare-ok", "sll"},
                                      {50, 20, "queue.bind", "hsssbt"},
                                      {50, 21, "queue.bind-ok", ""},
                                      {50, 31, "queue.purge-ok", "l"},
                                      {50, 40, "queue.delete", "hsbbb"},
                                      {50, 41, "queue.delete-ok", "l"},
                                      {50, 51, "queue.unbind-ok", ""},
                                      {60, 10, "basic.qos", "lhb"},
                                      {60, 11, "basic.qos-ok", ""},
                                      {60, 20, "basic.consume", "hssbbbbt"},
                                      {60, 21, "basic.consume-ok", "s"},
                                      {60, 30, "basic.cancel", "sb"},
                                      {60, 31, "basic.cancel-ok", "s"},
                                      {60, 40, "basic.publish", "hssbb"},
                                      {60, 50, "basic.return", "hsss"},
                                      {60, 60, "basic.deliver", "sqbss"},
                                      {60, 71, "basic.get-ok", "qbssl"},
                                      {60, 72, "basic.get-empty", "s"},
                                      {60, 80, "basic.ack", "qb"},
                                      {60, 90, "basic.reject", "qb"},
                                      {60, 111, "basic.recover-ok", ""},
                                      {60, 120, "basic.nack", "qbb"},
                                      {85, 10, "confirm.select", "b"},
                                      {85, 11, "confirm.select-ok", ""},
                                      {60, 70, "basic.get", "hsb"}};
#define LATER                                                                                                \
  1 /* methods at the end that programs cannot choose: their numbers of methods would all change */

void wire_fail(const char *file, int line, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, "%s:%d: ", file, line);
  vfprintf(stderr, format, arguments);
  fprintf(stderr, "\n");
  va_end(arguments);
  abort();
}

size_t wire_method_count(void) { return sizeof methods / sizeof *methods - LATER; }

const wire_method *wire_method_at(size_t index) { return &methods[index % wire_method_count()]; }

/* A table: this lookup is most of the work here. */
static const wire_method *method_of(unsigned class_id, unsigned id) {
  static const wire_method *by[90][128];
  if (!by[10][10])
    for (size_t i = 0; i < wire_method_count() + LATER; i++)
      by[methods[i].class_id][methods[i].id] = &methods[i];
  return class_id < 90 && id < 128 ? by[class_id][id] : NULL;
}

const wire_method *wire_method_by(unsigned id) {
  const wire_method *method = method_of(id >> 16, id & 0xffff);
  CHECK(method, "there is no method %x", id);
  return method;
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

typedef struct reader {
  const uint8_t *at, *end;
} reader;

static uint64_t number(reader *in, size_t bytes) {
  uint64_t value = 0;
  CHECK((size_t)(in->end - in->at) >= bytes, "a frame ends within a number");
  while (bytes-- > 0) value = value << 8 | *in->at++;
  return value;
}

static wire_value text(reader *in, size_t length_bytes) {
  size_t length = number(in, length_bytes);
  CHECK((size_t)(in->end - in->at) >= length, "a frame ends within a text");
  in->at += length;
  return (wire_value){.bytes = in->at - length, .length = length};
}

static void read_table(wire_value table, int depth);

static void read_array(wire_value items, int depth);

static void read_value(reader *in, int depth) {
  switch (number(in, 1)) {
    case 't':
      CHECK(number(in, 1) <= 1, "a boolean is neither");
      return;
    case 'I':
    case 'i':
      number(in, 4);
      return;
    case 'l':
    case 'T':
      number(in, 8);
      return;
    case 'S':
      text(in, 4);
      return;
    case 'F':
      read_table(text(in, 4), depth + 1);
      return;
    case 'A':
      read_array(text(in, 4), depth + 1);
      return;
    default:
      CHECK(false, "a field is of a type that nobody here uses");
  }
}

static void read_array(wire_value items, int depth) {
  reader in = {items.bytes, (const uint8_t *)items.bytes + items.length};
  CHECK(depth < DEEPEST, "an array is too deep");
  while (in.at < in.end) read_value(&in, depth);
}

static void read_table(wire_value table, int depth) {
  reader in = {table.bytes, (const uint8_t *)table.bytes + table.length};
  CHECK(depth < DEEPEST, "a table is too deep");
  while (in.at < in.end) {
    CHECK(text(&in, 1).length > 0, "a table's key is empty");
    read_value(&in, depth);
  }
}

static wire_value read_field(reader *in, char letter) {
  wire_value value;
  switch (letter) {
    case 'o':
      return WIRE_NUMBER(number(in, 1));
    case 'h':
      return WIRE_NUMBER(number(in, 2));
    case 'l':
      return WIRE_NUMBER(number(in, 4));
    case 'q':
      return WIRE_NUMBER(number(in, 8));
    case 's':
      return text(in, 1);
    default:
      value = text(in, 4);
      if (letter == 't') read_table(value, 0);
      return value;
  }
}

static void read_fields(reader *in, const char *letters, wire_value *fields) {
  unsigned bits = 0, bit = 8;
  for (int i = 0; letters[i]; i++) {
    if (letters[i] != 'b') {
      fields[i] = read_field(in, letters[i]);
      bit = 8;
      continue;
    }
    if (bit == 8) {
      bits = (unsigned)number(in, 1);
      bit = 0;
    }
    fields[i] = WIRE_NUMBER(bits >> bit++ & 1);
  }
}

static void read_method(reader *in, wire_frame *frame) {
  unsigned class_id = (unsigned)number(in, 2), id = (unsigned)number(in, 2);
  frame->method = method_of(class_id, id);
  CHECK(frame->method, "there is no method %u.%u", class_id, id);
  CHECK((class_id == 10) == (frame->channel == 0), "%s on channel %d", frame->method->name, frame->channel);
  read_fields(in, frame->method->fields, frame->fields);
}

/* From the highest bit: only the properties that the library sends. */
static void read_header(reader *in, wire_frame *frame) {
  CHECK(number(in, 2) == 60 && number(in, 2) == 0, "a header of a class that has none");
  frame->body_size = number(in, 8);
  unsigned flags = (unsigned)number(in, 2), headers = 1 << 13, delivery_mode = 1 << 12, correlation = 1 << 10,
           expiration = 1 << 8, id = 1 << 7, kind = 1 << 5;
  CHECK(!(flags & ~(headers | delivery_mode | correlation | expiration | id | kind)),
        "a header with flags %x", flags);
  if (flags & headers) frame->headers = read_field(in, 't');
  if (flags & delivery_mode) number(in, 1);
  if (flags & correlation) frame->correlation = text(in, 1);
  if (flags & expiration) text(in, 1);
  if (flags & id) frame->id = text(in, 1);
  if (flags & kind) frame->kind = text(in, 1);
}

bool wire_read(const uint8_t *bytes, size_t length, size_t most, wire_frame *frame) {
  if (length < 8) return false;
  reader in = {bytes, bytes + length};
  *frame = (wire_frame){.type = (int)number(&in, 1), .channel = (int)number(&in, 2)};
  size_t size = number(&in, 4);
  CHECK(size + 8 <= most, "a frame of %zu bytes where %zu are allowed", size + 8, most);
  if (length < size + 8) return false;
  CHECK(bytes[size + 7] == FRAME_END, "a frame without its end");
  in.end = in.at + size;
  frame->size = size + 8;
  if (frame->type == WIRE_METHOD)
    read_method(&in, frame);
  else if (frame->type == WIRE_HEADER)
    read_header(&in, frame);
  else
    CHECK(frame->type == WIRE_HEARTBEAT && frame->channel == 0 && size == 0, "a frame of type %d",
          frame->type);
  CHECK(in.at == in.end, "a frame with %zu bytes too many", (size_t)(in.end - in.at));
  return true;
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

void wire_append(wire_buffer *out, const void *bytes, size_t length) {
  if (length == 0) return;
  while (out->length + length > out->size) {
    out->size = out->size ? out->size * 2 : 512;
    out->bytes = realloc(out->bytes, out->size);
    CHECK(out->bytes, "no memory");
  }
  memcpy(out->bytes + out->length, bytes, length);
  out->length += length;
}

void wire_consume(wire_buffer *out, size_t length) {
  out->length -= length;
  if (out->length > 0) memmove(out->bytes, out->bytes + length, out->length);
}

void wire_free(wire_buffer *out) {
  free(out->bytes);
  *out = (wire_buffer){0};
}

static void put(wire_buffer *out, uint64_t value, int bytes) {
  uint8_t big[8];
  for (int i = bytes - 1; i >= 0; i--, value >>= 8) big[i] = (uint8_t)value;
  wire_append(out, big, (size_t)bytes);
}

static void put_text(wire_buffer *out, wire_value value, int length_bytes) {
  size_t length = length_bytes == 1 && value.length > 255 ? 255 : value.length;
  put(out, length, length_bytes);
  wire_append(out, value.bytes, length);
}

void wire_frame_of(wire_buffer *out, int type, int channel, const void *payload, size_t length) {
  put(out, (uint64_t)type, 1);
  put(out, (uint64_t)channel, 2);
  put(out, length, 4);
  wire_append(out, payload, length);
  put(out, FRAME_END, 1);
}

static void put_field(wire_buffer *out, char letter, wire_value value) {
  if (letter == 's')
    put_text(out, value, 1);
  else if (letter == 'S' || letter == 't')
    put_text(out, value, 4);
  else
    put(out, value.number, letter == 'o' ? 1 : letter == 'h' ? 2 : letter == 'l' ? 4 : 8);
}

void wire_say(wire_buffer *out, int channel, const wire_method *method, const wire_value *fields) {
  wire_buffer payload = {0};
  unsigned bits = 0, bit = 0;
  put(&payload, method->class_id, 2);
  put(&payload, method->id, 2);
  for (int i = 0; method->fields[i]; i++) {
    bool is_bit = method->fields[i] == 'b', is_last = method->fields[i + 1] != 'b';
    if (is_bit) bits |= (unsigned)(fields[i].number & 1) << bit++;
    if (!is_bit) put_field(&payload, method->fields[i], fields[i]);
    if (is_bit && is_last) put(&payload, bits, 1);
    if (is_last) bits = bit = 0;
  }
  wire_frame_of(out, WIRE_METHOD, channel, payload.bytes, payload.length);
  wire_free(&payload);
}

void wire_number_field(wire_buffer *table, const char *key, int64_t value) {
  put_text(table, WIRE_TEXT(key), 1);
  put(table, 'l', 1);
  put(table, (uint64_t)value, 8);
}

void wire_fence_header(wire_buffer *out, int channel, wire_value headers) {
  wire_buffer payload = {0};
  put(&payload, 60, 2);
  put(&payload, 0, 2);
  put(&payload, 0, 8);
  put(&payload, 1u << 13, 2);
  put_text(&payload, headers, 4);
  wire_frame_of(out, WIRE_HEADER, channel, payload.bytes, payload.length);
  wire_free(&payload);
}

void wire_header(wire_buffer *out, int channel, int class_id, uint64_t body_size, wire_value id,
                 wire_value correlation, wire_value kind) {
  wire_buffer payload = {0};
  put(&payload, (uint64_t)class_id, 2);
  put(&payload, 0, 2);
  put(&payload, body_size, 8);
  put(&payload, (correlation.length ? 1u << 10 : 0) | (id.length ? 1u << 7 : 0) | (kind.length ? 1u << 5 : 0),
      2);
  if (correlation.length) put_text(&payload, correlation, 1);
  if (id.length) put_text(&payload, id, 1);
  if (kind.length) put_text(&payload, kind, 1);
  wire_frame_of(out, WIRE_HEADER, channel, payload.bytes, payload.length);
  wire_free(&payload);
}
