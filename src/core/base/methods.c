/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/base/methods.h"

#include <ctype.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#define FIELDS_MOST 3

typedef struct field {
  const char *name;
  size_t at, size; /* of an integer, in bytes; 0: it is text */
} field;

#define T(method, name)                                                                                      \
  { #name, offsetof(amqp_##method##_t, name), 0 }
#define N(method, name)                                                                                      \
  { #name, offsetof(amqp_##method##_t, name), sizeof(((amqp_##method##_t *)0)->name) }

/* Not connection.start-ok, which has the password. */
static const struct {
  amqp_method_number_t id;
  field fields[FIELDS_MOST];
} methods[] = {
    {AMQP_CONNECTION_TUNE_OK_METHOD, {N(connection_tune_ok, channel_max), N(connection_tune_ok, heartbeat)}},
    {AMQP_CONNECTION_OPEN_METHOD, {T(connection_open, virtual_host)}},
    {AMQP_CONNECTION_CLOSE_METHOD, {N(connection_close, reply_code), T(connection_close, reply_text)}},
    {AMQP_CHANNEL_CLOSE_METHOD, {N(channel_close, reply_code), T(channel_close, reply_text)}},
    {AMQP_QUEUE_DECLARE_METHOD,
     {T(queue_declare, queue), N(queue_declare, passive), N(queue_declare, exclusive)}},
    {AMQP_QUEUE_DECLARE_OK_METHOD,
     {T(queue_declare_ok, queue), N(queue_declare_ok, message_count), N(queue_declare_ok, consumer_count)}},
    {AMQP_QUEUE_BIND_METHOD, {T(queue_bind, queue), T(queue_bind, routing_key)}},
    {AMQP_QUEUE_DELETE_METHOD, {T(queue_delete, queue)}},
    {AMQP_BASIC_CONSUME_METHOD, {T(basic_consume, queue), T(basic_consume, consumer_tag)}},
    {AMQP_BASIC_CANCEL_METHOD, {T(basic_cancel, consumer_tag)}},
    {AMQP_BASIC_PUBLISH_METHOD, {T(basic_publish, exchange), T(basic_publish, routing_key)}},
    {AMQP_BASIC_RETURN_METHOD, {T(basic_return, reply_text), T(basic_return, routing_key)}},
    {AMQP_BASIC_DELIVER_METHOD, {T(basic_deliver, consumer_tag), N(basic_deliver, delivery_tag)}},
    {AMQP_BASIC_GET_METHOD, {T(basic_get, queue)}},
    {AMQP_BASIC_ACK_METHOD, {N(basic_ack, delivery_tag), N(basic_ack, multiple)}},
    {AMQP_BASIC_NACK_METHOD, {N(basic_nack, delivery_tag), N(basic_nack, multiple)}},
};

static void put_text(FILE *out, const char *name, amqp_bytes_t text) {
  if (text.len > 0) fprintf(out, " %s=\"%.*s\"", name, (int)text.len, (const char *)text.bytes);
}

static void put_number(FILE *out, const field *field, const void *at) {
  uint64_t number = field->size == sizeof(uint16_t)   ? *(const uint16_t *)at
                    : field->size == sizeof(uint32_t) ? *(const uint32_t *)at
                                                      : *(const uint64_t *)at;
  if (number > 0) fprintf(out, " %s=%" PRIu64, field->name, number);
}

static void put_fields(FILE *out, const field fields[FIELDS_MOST], const char *decoded) {
  for (const field *field = fields; field < fields + FIELDS_MOST && field->name; field++)
    if (field->size > 0)
      put_number(out, field, decoded + field->at);
    else
      put_text(out, field->name, *(const amqp_bytes_t *)(decoded + field->at));
}

/* AMQP_QUEUE_DECLARE_OK_METHOD is queue.declare-ok. */
void al_method_print(const amqp_method_t *method, FILE *out) {
  const char *name = amqp_method_name(method->id);
  char gap = '.';
  for (const char *c = name ? name + strlen("AMQP_") : "_METHOD"; strcmp(c, "_METHOD") != 0; c++) {
    fputc(*c == '_' ? gap : tolower((unsigned char)*c), out);
    if (*c == '_') gap = '-';
  }
  for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
    if (methods[i].id == method->id) put_fields(out, methods[i].fields, method->decoded);
}

void al_properties_print(const amqp_basic_properties_t *it, FILE *out) {
  fprintf(out, "header");
  if (it->_flags & AMQP_BASIC_TYPE_FLAG) put_text(out, "type", it->type);
  if (it->_flags & AMQP_BASIC_MESSAGE_ID_FLAG) put_text(out, "message_id", it->message_id);
  if (it->_flags & AMQP_BASIC_CORRELATION_ID_FLAG) put_text(out, "correlation_id", it->correlation_id);
}

bool al_method_is_answer(amqp_method_number_t id) {
  switch (id) {
    case AMQP_CHANNEL_OPEN_OK_METHOD:
    case AMQP_CHANNEL_CLOSE_OK_METHOD:
    case AMQP_QUEUE_DECLARE_OK_METHOD:
    case AMQP_QUEUE_DELETE_OK_METHOD:
    case AMQP_BASIC_CONSUME_OK_METHOD:
    case AMQP_BASIC_CANCEL_OK_METHOD:
    case AMQP_BASIC_QOS_OK_METHOD:
    case AMQP_BASIC_GET_OK_METHOD:
    case AMQP_BASIC_GET_EMPTY_METHOD:
    case AMQP_CONFIRM_SELECT_OK_METHOD:
    case AMQP_QUEUE_BIND_OK_METHOD:
      return true;
    default:
      return false;
  }
}
