/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/session/message.h"

static const char *const types[] = {[AL_MESSAGE_REVOKE] = AL_TYPE_REVOKE,
                                    [AL_MESSAGE_TOKEN] = AL_TYPE_TOKEN,
                                    [AL_MESSAGE_WAITING] = AL_TYPE_WAITING,
                                    [AL_MESSAGE_READERS] = NULL,
                                    [AL_MESSAGE_REVOKE_READERS] = AL_TYPE_REVOKE,
                                    [AL_MESSAGE_PERMIT] = AL_TYPE_PERMIT,
                                    [AL_MESSAGE_MARK] = AL_TYPE_MARK};

bool al_message_is_question(al_message message) {
  return message == AL_MESSAGE_PROBE || message == AL_MESSAGE_READERS;
}

bool al_message_is_to_readers(al_message message) {
  return message == AL_MESSAGE_READERS || message == AL_MESSAGE_REVOKE_READERS;
}

static bool is_kept(al_message message) {
  return message == AL_MESSAGE_TOKEN || message == AL_MESSAGE_PERMIT || message == AL_MESSAGE_MARK;
}

/* A message that does not stay is useless a moment later. So it expires at once. */
amqp_basic_properties_t al_message_properties(al_message message, const char *id, al_life *life) {
  amqp_basic_properties_t properties = {._flags = AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG,
                                        .message_id = amqp_cstring_bytes(life ? life->id : id),
                                        .expiration = amqp_cstring_bytes("0"),
                                        .delivery_mode = AMQP_DELIVERY_NONPERSISTENT};
  if (is_kept(message))
    properties.delivery_mode = AMQP_DELIVERY_PERSISTENT;
  else
    properties._flags |= AMQP_BASIC_EXPIRATION_FLAG;
  if (types[message]) {
    properties._flags |= AMQP_BASIC_TYPE_FLAG;
    properties.type = amqp_cstring_bytes(types[message]);
  }
  if (life) {
    properties._flags |= AMQP_BASIC_CORRELATION_ID_FLAG | AMQP_BASIC_HEADERS_FLAG;
    properties.correlation_id = amqp_cstring_bytes(id);
    properties.headers = (amqp_table_t){.num_entries = 1, .entries = &life->base};
  }
  return properties;
}
