/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Settings and the URL they come from. rabbitmq-c reads the URL proper; the query, which it refuses, is read here. */
#include "amqplocks.h"
#include "core/amqp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text.h"

#define URL_SIZE 16384 /* whatever fits the settings fits here, with every byte of it percent-encoded */

void al_settings_init(al_settings *settings) {
  *settings = (al_settings){.host = "localhost",
                            .port = 5672,
                            .user = "guest",
                            .password = "guest",
                            .vhost = "/",
                            .heartbeat = 10,
                            .channel_max = 2047,
                            .timeout = 5 * AL_SECOND,
                            .verify = true};
}

/* Copies text that must fit; `what` names it when it does not. */
static bool keep(char *to, size_t size, const char *from, const char *what, char why[AL_MESSAGE_SIZE]) {
  size_t length = strlen(from);
  if (length < size) memcpy(to, from, length + 1);
  if (length >= size)
    snprintf(why, AL_MESSAGE_SIZE, "%s in the URL is longer than %zu bytes", what, size - 1);
  return length < size;
}

static int hex(char c) {
  const char *digits = "0123456789abcdef",
             *at = c ? strchr(digits, c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c) : NULL;
  return at ? (int)(at - digits) : -1;
}

/* Undoes %XX in place. */
static bool percent_decode(char *text) {
  char *to = text;
  for (const char *from = text; *from; from++) {
    if (*from != '%') {
      *to++ = *from;
      continue;
    }
    int high = hex(from[1]), low = high < 0 ? -1 : hex(from[2]);
    if (low < 0 || (high == 0 && low == 0)) return false;
    *to++ = (char)(high * 16 + low);
    from += 2;
  }
  *to = '\0';
  return true;
}

static bool whole_number(const char *text, long least, long most, long *number) {
  char *end;
  *number = strtol(text, &end, 10);
  return *text >= '0' && *text <= '9' && *end == '\0' && *number >= least && *number <= most;
}

/* One `key=value` of the query, as RabbitMQ's "URI Query Parameters" has them. */
static bool parameter(al_settings *s, const char *key, const char *value, char why[AL_MESSAGE_SIZE]) {
  long number = 0;
  bool good = true;
  if (strcmp(key, "heartbeat") == 0) {
    good = whole_number(value, 1, 65535, &number);
    s->heartbeat = (int)number;
  } else if (strcmp(key, "connection_timeout") == 0) {
    good = whole_number(value, 1, 86400000, &number);
    if (good) s->timeout = number * AL_MILLISECOND;
  } else if (strcmp(key, "channel_max") == 0) {
    good = whole_number(value, 1, 65535, &number);
    s->channel_max = (int)number;
  } else if (strcmp(key, "auth_mechanism") == 0) {
    s->external = strcmp(value, "external") == 0;
    good = s->external || strcmp(value, "plain") == 0;
  } else if (strcmp(key, "verify") == 0) {
    s->verify = strcmp(value, "verify_peer") == 0;
    good = s->verify || strcmp(value, "verify_none") == 0;
  } else if (strcmp(key, "cacertfile") == 0) {
    return keep(s->ca, sizeof s->ca, value, key, why);
  } else if (strcmp(key, "certfile") == 0) {
    return keep(s->cert, sizeof s->cert, value, key, why);
  } else if (strcmp(key, "keyfile") == 0) {
    return keep(s->key, sizeof s->key, value, key, why);
  } else if (strcmp(key, "server_name_indication") == 0) {
    return keep(s->server_name, sizeof s->server_name, value, key, why);
  } else {
    snprintf(why, AL_MESSAGE_SIZE, "the URL has a query parameter that is not known: \"%.64s\"", key);
    return false;
  }
  if (!good) snprintf(why, AL_MESSAGE_SIZE, "the URL gives %s a value it cannot have", key);
  return good;
}

static bool query(al_settings *settings, char *text, char why[AL_MESSAGE_SIZE]) {
  char *rest = NULL;
  if (strchr(
          text,
          '@')) { /* the rest of a password with a question mark in it, most likely: it must not be shown */
    snprintf(why, AL_MESSAGE_SIZE, "the URL has an \"@\" in its query; in a password, \"?\" is written %%3F");
    return false;
  }
  for (char *part = strtok_r(text, "&", &rest); part; part = strtok_r(NULL, "&", &rest)) {
    char *value = strchr(part, '=');
    if (value) *value++ = '\0';
    if (!value || !percent_decode(part) || !percent_decode(value)) {
      snprintf(why, AL_MESSAGE_SIZE, "the query of the URL is not made of key=value pairs");
      return false;
    }
    if (!parameter(settings, part, value, why)) return false;
  }
  return true;
}

static bool authority(al_settings *s, char *text, char why[AL_MESSAGE_SIZE]) {
  struct amqp_connection_info info;
  if (strstr(text, "%00")) { /* rabbitmq-c would cut the text there */
    snprintf(why, AL_MESSAGE_SIZE, "the URL holds a NUL (%%00)");
    return false;
  }
  if (amqp_parse_url(text, &info) != AMQP_STATUS_OK) {
    snprintf(why, AL_MESSAGE_SIZE,
             "the URL is not of the form amqp://user:password@host:port/vhost?key=value, "
             "or has a percent-encoded character outside ASCII");
    return false;
  }
  s->port = info.port;
  s->tls = info.ssl != 0;
  return keep(s->host, sizeof s->host, info.host, "the host", why) &&
         keep(s->user, sizeof s->user, info.user, "the user", why) &&
         keep(s->password, sizeof s->password, info.password, "the password", why) &&
         keep(s->vhost, sizeof s->vhost, info.vhost, "the virtual host", why);
}

bool al_settings_check(const al_settings *settings, char why[AL_MESSAGE_SIZE]) {
  const char *wrong = al_text_wrong(settings->name, strlen(settings->name));
  bool is_vhost = al_text_is_utf8(settings->vhost, strlen(settings->vhost));
  if (wrong)
    snprintf(why, AL_MESSAGE_SIZE, "the name of the connection %s", wrong);
  else if (!is_vhost)
    snprintf(why, AL_MESSAGE_SIZE, "the name of the virtual host is not UTF-8");
  return !wrong && is_vhost;
}

bool al_settings_url(al_settings *settings, const char *url, char why[AL_MESSAGE_SIZE]) {
  char copy[URL_SIZE]; /* rabbitmq-c cuts the text up, and its parts point into it */
  if (strlen(url) >= sizeof copy) {
    snprintf(why, AL_MESSAGE_SIZE, "the URL is longer than %zu bytes", sizeof copy - 1);
    return false;
  }
  memcpy(copy, url, strlen(url) + 1);
  char *mark = strchr(copy, '?');
  if (mark) *mark = '\0';
  bool good = authority(settings, copy, why) && (!mark || query(settings, mark + 1, why)) &&
              al_settings_check(settings, why);
  explicit_bzero(copy, sizeof copy);
  return good;
}
