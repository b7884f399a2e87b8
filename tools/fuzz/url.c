/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The fuzzing target "url": the input is a URL, as a user may have pasted it, and a name for a lock. For every input
 *   - the URL is accepted or refused. If it is accepted, every setting is one that a session can be made of, and its
 *     text is terminated, for each of its hosts. A URL with several hosts is refused where there is room for one;
 *   - if it is refused, a reason is given, which shows nothing of the password;
 *   - if the lock's name is accepted, the name of every queue of it is one that AMQP can carry.
 * A session made of an accepted URL sends an AMQP protocol header. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/name.h"
#include "core/session/loop.h"
#include "core/session/session.h"
#include "core/wire/connection.h"
#include "transport/bytes.h"
#include "wire.h"

#define TEXT_MOST 20000
#define HOSTS_MOST 3
#define PASSWORD_LEAST 6 /* shorter ones may occur by chance in the text about the rest */

static void check_text(const char *text, size_t size, const char *what) {
  CHECK(memchr(text, '\0', size), "%s has no end", what);
}

static void check_settings(const al_settings *s) {
  check_text(s->host, sizeof s->host, "the host");
  check_text(s->user, sizeof s->user, "the user");
  check_text(s->password, sizeof s->password, "the password");
  check_text(s->vhost, sizeof s->vhost, "the virtual host");
  check_text(s->ca, sizeof s->ca, "the CA");
  check_text(s->cert, sizeof s->cert, "the certificate");
  check_text(s->key, sizeof s->key, "the key");
  check_text(s->server_name, sizeof s->server_name, "the server's name");
  CHECK(s->host[0], "no host");
  CHECK(s->port >= 1 && s->port <= 65535, "port %d", s->port);
  CHECK(s->heartbeat >= 1 && s->heartbeat <= 65535, "heartbeat %d", s->heartbeat);
  CHECK(s->channel_max >= 1 && s->channel_max <= 65535, "channel_max %d", s->channel_max);
  CHECK(s->timeout > 0, "no time at all");
}

/* The password is the text between the first colon of the authority and its last @. */
static void check_reason(const char *url, const char *why) {
  const char *begin = strstr(url, "://"), *colon = begin ? strchr(begin + 3, ':') : NULL;
  const char *end = colon ? strrchr(colon, '@') : NULL;
  char password[TEXT_MOST];
  CHECK(memchr(why, '\0', AL_MESSAGE_SIZE) && why[0], "refused without a reason");
  if (!end || end - colon - 1 < PASSWORD_LEAST) return;
  size_t length = (size_t)(end - colon - 1);
  memcpy(password, colon + 1, length);
  password[length] = '\0';
  static const char words[] =
      "amqp:// or amqps://user:password@host:port/vhost?key=value; known are heartbeat, connection_timeout, "
      "channel_max, auth_mechanism, verify, cacertfile, certfile, keyfile and server_name_indication";
  bool is_word = strstr(words, password) != NULL;
  bool is_twice = strstr(end, password) != NULL; /* the second occurrence is something else */
  CHECK(is_word || is_twice || !strstr(why, password), "the password is shown: %s", why);
}

/* Runs a session of these settings until the broker has no more requests. */
static void greet(const al_settings *settings) {
  static const char properties[] = "";
  wire_value start[] = {WIRE_NUMBER(0), WIRE_NUMBER(9), WIRE_TEXT(properties), WIRE_TEXT("PLAIN EXTERNAL"),
                        WIRE_TEXT("en_US")};
  wire_value tune[] = {WIRE_NUMBER(2047), WIRE_NUMBER(8192), WIRE_NUMBER(60)}, none = {0};
  al_session *session = al_session_new(settings, 1);
  CHECK(session, "no memory");
  al_session_set_time(session, AL_SECOND, 1e9);
  al_op *op = al_session_open(session);
  al_port *port = al_bytes_port();
  CHECK(op && port, "no memory");
  al_connection_attach(&session->holder, port, AL_SECOND, AL_NEVER);
  wire_buffer said = {0};
  wire_say(&said, 0, wire_method_by(WIRE_START), start);
  wire_say(&said, 0, wire_method_by(WIRE_TUNE), tune);
  wire_say(&said, 0, wire_method_by(WIRE_OPEN_OK), &none);
  al_bytes_feed(port, said.bytes, said.length);
  al_session_pump(session, AL_SECOND);
  CHECK(al_op_done(op) && al_op_code(op) == AL_OK, "%s", al_op_message(op));
  size_t length, at = 8;
  const uint8_t *bytes = al_bytes_output(port, &length);
  wire_frame frame;
  CHECK(length > 8 && memcmp(bytes, "AMQP", 4) == 0, "no AMQP");
  for (; at < length; at += frame.size)
    CHECK(wire_read(bytes + at, length - at, 8192, &frame), "half a frame");
  wire_free(&said);
  al_op_drop(op);
  al_session_drop(session);
}

static void check_name(const char *name, size_t length) {
  static const char ticket[AL_TICKET_SIZE] = "0123456789abcdef";
  char why[AL_MESSAGE_SIZE] = "", scratch[AL_NAME_SIZE], slot[AL_NAME_SIZE];
  if (!al_name_check(name, length, why)) {
    CHECK(memchr(why, '\0', sizeof why) && why[0], "a name was refused without a reason");
    return;
  }
  CHECK(length > 0 && strlen(name) == length, "a name with a NUL, or none");
  al_name_scratch(scratch, name, ticket);
  al_name_holder(slot, name, AL_SLOTS_MAX);
  CHECK(strlen(scratch) == length + strlen("-scratch-") + 16 && strlen(slot) == length + strlen("-65535-B"),
        "a queue's name was cut short");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char why[AL_MESSAGE_SIZE], text[TEXT_MOST];
  al_settings settings[HOSTS_MOST];
  if (size >= sizeof text) return 0;
  if (size > 0) memcpy(text, data, size);
  text[size] = '\0';
  check_name(text, size);
  memset(settings, 0xaa, sizeof settings);
  memset(why, 0xaa, sizeof why);
  al_settings_init(settings);
  size_t count = al_settings_urls(settings, HOSTS_MOST, text, why);
  if (count == 0) check_reason(text, why);
  for (size_t i = 0; i < count; i++) check_settings(&settings[i]);
  if (count > 0) greet(settings);
  al_settings_init(settings);
  bool is_one = al_settings_url(settings, text, why);
  CHECK(is_one == (count == 1), "of %zu hosts one is taken", count);
  if (!is_one) check_reason(text, why);
  return 0;
}
