/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/wire/handshake.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/base/field.h"

#define THEIR_FRAME_MAX 1048576 /* while one frame arrives, no other can */

__attribute__((format(printf, 3, 4))) static al_code refuse(char why[AL_MESSAGE_SIZE], al_code code,
                                                            const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(why, AL_MESSAGE_SIZE, format, arguments);
  va_end(arguments);
  return code;
}

/* PLAIN (RFC 4616) sends NUL user NUL password. EXTERNAL sends nothing: the identity is the certificate's. */
static amqp_bytes_t sasl_response(const al_settings *settings, char *out) {
  if (settings->external) return amqp_empty_bytes;
  size_t user = strlen(settings->user), password = strlen(settings->password);
  out[0] = '\0';
  memcpy(out + 1, settings->user, user + 1);
  memcpy(out + 2 + user, settings->password, password);
  return (amqp_bytes_t){.len = 2 + user + password, .bytes = out};
}

static void send_start_ok(al_link *link) {
  char name[sizeof link->settings->name + 16];
  char response[sizeof link->settings->user + sizeof link->settings->password];
  snprintf(name, sizeof name, "%s %s", link->settings->name, link->role);
  amqp_table_entry_t capabilities[] = {al_field_yes("authentication_failure_close"),
                                       al_field_yes("basic.nack"), al_field_yes("connection.blocked"),
                                       al_field_yes("consumer_cancel_notify"),
                                       al_field_yes("publisher_confirms")};
  amqp_table_entry_t properties[] = {
      al_field_text("product", "amqp-locks"), al_field_text("version", AL_VERSION),
      al_field_text("connection_name", name), al_field_table("capabilities", 5, capabilities)};
  amqp_connection_start_ok_t ok = {.client_properties = {.num_entries = 4, .entries = properties},
                                   .mechanism =
                                       amqp_cstring_bytes(link->settings->external ? "EXTERNAL" : "PLAIN"),
                                   .response = sasl_response(link->settings, response),
                                   .locale = amqp_cstring_bytes("en_US")};
  al_link_method(link, 0, AMQP_CONNECTION_START_OK_METHOD, &ok);
  explicit_bzero(response, sizeof response);
}

static int version_number(amqp_bytes_t text) {
  int major = 0, minor = 0, patch = 0;
  char copy[32];
  snprintf(copy, sizeof copy, "%.*s", (int)text.len, (const char *)text.bytes);
  if (sscanf(copy, "%d.%d.%d", &major, &minor, &patch) < 2) return 0;
  return major * 10000 + minor * 100 + patch;
}

static int broker_version(const amqp_table_t *properties) {
  for (int i = 0; i < properties->num_entries; i++) {
    const amqp_table_entry_t *entry = &properties->entries[i];
    bool is_version = al_field_is(entry->key, "version");
    if (is_version && entry->value.kind == AMQP_FIELD_KIND_UTF8)
      return version_number(entry->value.value.bytes);
  }
  return 0;
}

/* Copies the name of the broker's cluster; "" if the broker does not tell it. */
static void cluster_name(const amqp_table_t *properties, char *out, size_t size) {
  out[0] = '\0';
  for (int i = 0; i < properties->num_entries; i++) {
    const amqp_table_entry_t *entry = &properties->entries[i];
    if (al_field_is(entry->key, "cluster_name") && entry->value.kind == AMQP_FIELD_KIND_UTF8)
      snprintf(out, size, "%.*s", (int)entry->value.value.bytes.len,
               (const char *)entry->value.value.bytes.bytes);
  }
}

/* Nodes must belong to one cluster: on two clusters, one lock would have two holders. The broker of a single name is the
 * right one, and the administrator may replace it; but not while the session has connections to the one before. */
static al_code check_cluster(const al_link *link, char why[AL_MESSAGE_SIZE]) {
  const char *expected = link->cluster->name, *seen = link->seen_cluster;
  bool may_differ = !link->moves && link->cluster->open == 0;
  if (may_differ || expected[0] == '\0' || seen[0] == '\0' || strcmp(expected, seen) == 0) return AL_OK;
  return refuse(
      why, AL_CONFLICT,
      "the broker at %.150s:%d belongs to the cluster \"%.100s\", and the one before to \"%.100s\": "
      "list the nodes of one cluster",
      link->settings->host, link->settings->port, seen, expected);
}

static al_code opened(al_link *link, char why[AL_MESSAGE_SIZE]) {
  al_code code = check_cluster(link, why); /* again: another link may have opened since started() */
  if (code != AL_OK) return code;
  if (link->seen_cluster[0] != '\0')
    memcpy(link->cluster->name, link->seen_cluster, sizeof link->cluster->name);
  al_link_enter(link, AL_LINK_OPEN);
  link->cluster->open++;
  return AL_OK;
}

static bool offers(amqp_bytes_t mechanisms, const char *wanted) {
  char list[256];
  snprintf(list, sizeof list, "%.*s", (int)mechanisms.len, (const char *)mechanisms.bytes);
  char *rest = NULL;
  for (char *one = strtok_r(list, " ", &rest); one; one = strtok_r(NULL, " ", &rest))
    if (strcmp(one, wanted) == 0) return true;
  return false;
}

static al_code started(al_link *link, const amqp_connection_start_t *start, char why[AL_MESSAGE_SIZE]) {
  const char *mechanism = link->settings->external ? "EXTERNAL" : "PLAIN";
  if (!offers(start->mechanisms, mechanism))
    return refuse(why, AL_AUTH, "the broker does not offer the SASL mechanism %s", mechanism);
  link->version = broker_version(&start->server_properties);
  cluster_name(&start->server_properties, link->seen_cluster, sizeof link->seen_cluster);
  al_code code = check_cluster(link, why); /* before the password is sent */
  if (code != AL_OK) return code;
  send_start_ok(link);
  al_link_enter(link, AL_LINK_TUNING);
  return AL_OK;
}

/* Returns the smaller of two limits. `theirs` 0 means no limit. */
static int lesser(int ours, uint32_t theirs) {
  return theirs > 0 && theirs < (uint32_t)ours ? (int)theirs : ours;
}

/* RabbitMQ does not split the header of a message over frames. So it may send a frame as large as a publisher may
 * send: up to the frame_max that it offers. */
static al_code check_frame_max(uint32_t frame_max, char why[AL_MESSAGE_SIZE]) {
  if (frame_max == 0 || frame_max > THEIR_FRAME_MAX)
    return refuse(why, AL_LIMIT,
                  "the broker's frame_max is %u%s: set it to at most %d, as 131072, which is its default",
                  frame_max, frame_max == 0 ? ", no limit" : "", THEIR_FRAME_MAX);
  if (frame_max < AMQP_FRAME_MIN_SIZE)
    return refuse(why, AL_PROTOCOL, "the broker's frame_max is %u, less than the %d that AMQP allows",
                  frame_max, AMQP_FRAME_MIN_SIZE);
  return AL_OK;
}

static al_code tuned(al_link *link, const amqp_connection_tune_t *tune, char why[AL_MESSAGE_SIZE]) {
  al_code code = check_frame_max(tune->frame_max, why);
  if (code != AL_OK) return code;
  link->channel_max = lesser(link->settings->channel_max, tune->channel_max);
  amqp_connection_tune_ok_t ok = {.channel_max = (uint16_t)link->channel_max,
                                  .frame_max = tune->frame_max,
                                  .heartbeat = (uint16_t)link->settings->heartbeat};
  amqp_connection_open_t open = {.virtual_host = amqp_cstring_bytes(link->settings->vhost),
                                 .capabilities = amqp_empty_bytes};
  al_link_method(link, 0, AMQP_CONNECTION_TUNE_OK_METHOD, &ok);
  al_link_method(link, 0, AMQP_CONNECTION_OPEN_METHOD, &open);
  al_link_enter(link, AL_LINK_OPENING);
  return AL_OK;
}

al_code al_handshake(al_link *link, const amqp_frame_t *frame, char why[AL_MESSAGE_SIZE]) {
  const amqp_method_t *method = &frame->payload.method;
  if (link->state == AL_LINK_GREETING && method->id == AMQP_CONNECTION_START_METHOD)
    return started(link, method->decoded, why);
  if (link->state == AL_LINK_TUNING && method->id == AMQP_CONNECTION_TUNE_METHOD)
    return tuned(link, method->decoded, why);
  if (link->state == AL_LINK_OPENING && method->id == AMQP_CONNECTION_OPEN_OK_METHOD)
    return opened(link, why);
  const char *name = amqp_method_name(method->id);
  return refuse(why, AL_PROTOCOL, "the broker broke the AMQP handshake with %s",
                name ? name : "an unknown method");
}

static bool mentions(amqp_bytes_t text, const char *word) {
  return text.len > 0 && memmem(text.bytes, text.len, word, strlen(word)) != NULL;
}

/* RabbitMQ's texts for two limits, the same from 3.10 to 4.x. The first is the limit of connections (of a virtual
 * host, a user, a node), told when a connection is opened. The second is the limit of channels (of a user, a node,
 * the connection), told when one channel too many is opened. */
static bool tells_limit(amqp_bytes_t text) {
  return mentions(text, "connection limit (") || mentions(text, "number of channels opened ");
}

al_code al_handshake_refusal(al_link_state state, const amqp_connection_close_t *close) {
  bool limit = tells_limit(close->reply_text);
  if (state == AL_LINK_TUNING && close->reply_code == AMQP_ACCESS_REFUSED) return AL_AUTH;
  if (state == AL_LINK_OPENING && close->reply_code == AMQP_NOT_ALLOWED) return limit ? AL_LIMIT : AL_VHOST;
  if (close->reply_code == AMQP_NOT_ALLOWED && limit) return AL_LIMIT;
  if (state == AL_LINK_CLOSING) return AL_CLOSED;
  return AL_UNREACHABLE;
}
