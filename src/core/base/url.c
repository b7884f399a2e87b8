/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Reads settings from a URL by RabbitMQ's URI specification. Several hosts may be given, with commas between them.
 * Blanks and ends of lines around the URL do not count: it may have been read from a file.
 *
 * When a URL is refused, the message names the part that is wrong and how to correct it. The message shows no text of
 * the URL except the key of a query parameter. The reason: when an "@" or a "/" is misplaced, any part may hold the
 * password. */
#include "amqplocks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/base/text.h"

#define URL_SIZE 16384 /* enough for the longest settings, with every byte but a token's percent-encoded */

#define BLANKS " \t\r\n"

#define USER "the user"
#define PASSWORD "the password"
#define HOST "the host"
#define PORT "a port"
#define VHOST "the virtual host"
#define QUERY "the query"

/* The parts of a URL, still percent-encoded. NULL: the URL does not have this part. */
typedef struct al_url {
  char *user, *password, *hosts, *vhost, *query;
  bool tls;
} al_url;

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

/* Copies `from`. If it does not fit, fails with a message in which `what` names the text. */
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

/* Reads one `key=value` of the query. RabbitMQ's "URI Query Parameters" lists the keys. */
static bool parameter(al_settings *s, const char *key, const char *value, char why[AL_MESSAGE_SIZE]) {
  long number = 0;
  bool good = true;
  const char *wanted = "a whole number from 1 to 65535";
  if (strcmp(key, "heartbeat") == 0) {
    good = whole_number(value, 1, 65535, &number);
    s->heartbeat = (int)number;
  } else if (strcmp(key, "connection_timeout") == 0) {
    good = whole_number(value, 1, 86400000, &number);
    wanted = "milliseconds, a whole number from 1 to 86400000";
    if (good) s->timeout = number * AL_MILLISECOND;
  } else if (strcmp(key, "channel_max") == 0) {
    good = whole_number(value, 1, 65535, &number);
    s->channel_max = (int)number;
  } else if (strcmp(key, "auth_mechanism") == 0) {
    wanted = "plain or external";
    s->external = strcmp(value, "external") == 0;
    good = s->external || strcmp(value, "plain") == 0;
  } else if (strcmp(key, "verify") == 0) {
    wanted = "verify_peer or verify_none";
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
    snprintf(why, AL_MESSAGE_SIZE,
             "the URL has a query parameter that is not known: \"%.64s\"; known are heartbeat, "
             "connection_timeout, channel_max, auth_mechanism, verify, cacertfile, certfile, keyfile and "
             "server_name_indication",
             key);
    return false;
  }
  if (!good)
    snprintf(why, AL_MESSAGE_SIZE, "the URL gives %s a value it cannot have; it takes %s", key, wanted);
  return good;
}

static bool query(al_settings *settings, char *text, char why[AL_MESSAGE_SIZE]) {
  char *rest = NULL;
  for (char *part = strtok_r(text, "&", &rest); part; part = strtok_r(NULL, "&", &rest)) {
    char *value = strchr(part, '=');
    if (value) *value++ = '\0';
    if (!value || !percent_decode(part) || !percent_decode(value)) {
      snprintf(why, AL_MESSAGE_SIZE,
               "the query of the URL is not made of key=value pairs, with \"%%\" written as %%25");
      return false;
    }
    if (!parameter(settings, part, value, why)) return false;
  }
  return true;
}

/* ---- the parts -------------------------------------------------------------------------------------------------- */

static bool refuse(char why[AL_MESSAGE_SIZE], const char *words) {
  snprintf(why, AL_MESSAGE_SIZE, "%s", words);
  return false;
}

/* The part holds a character that must be percent-encoded. */
static bool refuse_raw(unsigned char c, const char *part, char why[AL_MESSAGE_SIZE]) {
  if (c < ' ' || c == 0x7f)
    snprintf(why, AL_MESSAGE_SIZE, "%s in the URL holds a control character, such as the end of a line",
             part);
  else
    snprintf(why, AL_MESSAGE_SIZE, "%s in the URL holds a \"%c\": write it as %%%02X", part, c, c);
  return false;
}

/* The part holds a "%" that does not begin a %XX, or it holds %00, at which a C string would end. */
static bool refuse_percent(bool is_nul, const char *part, char why[AL_MESSAGE_SIZE]) {
  snprintf(why, AL_MESSAGE_SIZE,
           is_nul ? "%s in the URL holds a NUL (%%00), which it cannot"
                  : "%s in the URL holds a \"%%\" without two hexadecimal digits behind it: write it as %%25",
           part);
  return false;
}

/* Checks that a part holds no control character and none of `reserved`: they must be percent-encoded. */
static bool check_raw(const char *text, const char *reserved, const char *part, char why[AL_MESSAGE_SIZE]) {
  for (const char *c = text; *c; c++)
    if ((unsigned char)*c < ' ' || *c == 0x7f || strchr(reserved, *c))
      return refuse_raw((unsigned char)*c, part, why);
  return true;
}

/* Decodes a part in place and copies it to `to`. */
static bool take(char *to, size_t size, char *text, const char *reserved, const char *part,
                 char why[AL_MESSAGE_SIZE]) {
  if (!check_raw(text, reserved, part, why)) return false;
  bool is_nul = strstr(text, "%00") != NULL; /* checked before decoding, which changes the text */
  return percent_decode(text) ? keep(to, size, text, part, why) : refuse_percent(is_nul, part, why);
}

static char *cut(char *text, char at) {
  char *end = text ? strchr(text, at) : NULL;
  if (end) *end++ = '\0';
  return end;
}

/* User, password and hosts stand before the first "/". If the password holds a raw "/" or "?", its rest and the "@"
 * stand after that character: this is how the mistake is found. */
static bool split(char *text, al_url *url, char why[AL_MESSAGE_SIZE]) {
  bool is_plain = strncasecmp(text, "amqp://", 7) == 0, is_tls = strncasecmp(text, "amqps://", 8) == 0;
  if (*text == '\0') return refuse(why, "the URL is empty");
  if (!is_plain && !is_tls) return refuse(why, "the URL does not begin with amqp:// or amqps://");
  *url = (al_url){.tls = is_tls, .hosts = text + (is_tls ? 8 : 7)};
  url->query = cut(url->hosts, '?');
  url->vhost = cut(url->hosts, '/');
  if (url->query && strchr(url->query, '@'))
    return refuse(why, "the URL has an \"@\" behind its first \"?\": "
                       "in a password write \"?\" as %3F, in a parameter \"@\" as %40");
  if (url->vhost && strchr(url->vhost, '@'))
    return refuse(why, "the URL has an \"@\" behind its first \"/\": "
                       "in a password write \"/\" as %2F, in a virtual host \"@\" as %40");
  char *hosts = cut(url->hosts, '@');
  if (!hosts) return true;
  if (strchr(hosts, '@'))
    return refuse(why, "the user or the password in the URL holds an \"@\": write it as %40");
  url->user = url->hosts;
  url->hosts = hosts;
  url->password = cut(url->user, ':');
  return true;
}

static bool identity(al_settings *s, const al_url *url, char why[AL_MESSAGE_SIZE]) {
  al_settings usual;
  al_settings_init(&usual);
  memcpy(s->user, usual.user, sizeof s->user);
  memcpy(s->password, usual.password, sizeof s->password);
  memcpy(s->vhost, usual.vhost, sizeof s->vhost);
  s->tls = url->tls;
  return (!url->user || take(s->user, sizeof s->user, url->user, " :/#[]", USER, why)) &&
         (!url->password || take(s->password, sizeof s->password, url->password, " :/#[]", PASSWORD, why)) &&
         (!url->vhost || take(s->vhost, sizeof s->vhost, url->vhost, " /#[]", VHOST, why));
}

/* ---- hosts ------------------------------------------------------------------------------------------------------ */

/* Reads the port after a host. `text` NULL: there is none, and the default port is used. */
static bool port(al_settings *s, const char *text, char why[AL_MESSAGE_SIZE]) {
  long number = s->tls ? 5671 : 5672;
  if (text && !check_raw(text, "", PORT, why)) return false;
  if (text && !whole_number(text, 1, 65535, &number))
    return refuse(why,
                  strchr(text, ':')
                      ? "a host in the URL has more than one \":\"; an IPv6 address stands in brackets: [::1]"
                      : "a port in the URL is not a whole number from 1 to 65535 "
                        "(amqp://user:password@host:port/vhost)");
  s->port = (int)number;
  return true;
}

/* Reads one host, with or without a port. */
static bool place(al_settings *s, char *text, char why[AL_MESSAGE_SIZE]) {
  bool is_bracketed = *text == '[';
  char *host = is_bracketed ? text + 1 : text, *behind = cut(host, is_bracketed ? ']' : ':');
  if (is_bracketed && (!behind || *host == '\0' || (*behind != '\0' && *behind != ':')))
    return refuse(why, "an IPv6 address in the URL is not in brackets, as in [::1]:5672");
  if (is_bracketed) behind = *behind == ':' ? behind + 1 : NULL;
  return port(s, behind, why) && take(s->host, sizeof s->host, host, " #[]", HOST, why);
}

/* A URL with one host may leave it empty: it is then localhost. */
static bool only_place(al_settings *s, char *text, char why[AL_MESSAGE_SIZE]) {
  if (!place(s, text, why)) return false;
  if (s->host[0] == '\0') snprintf(s->host, sizeof s->host, "localhost");
  return true;
}

static bool listed_place(al_settings *s, char *text, char why[AL_MESSAGE_SIZE]) {
  if (!place(s, text, why)) return false;
  return s->host[0] != '\0' || refuse(why, "a host in the URL is empty, before or behind a \",\"");
}

/* Reads all hosts. Each gets the first one's other settings. Returns their number, or 0 if one is refused. */
static size_t places(al_settings *all, size_t size, char *hosts, char why[AL_MESSAGE_SIZE]) {
  size_t count = 0;
  char *rest = cut(hosts, ',');
  if (!rest) return only_place(all, hosts, why) ? 1 : 0;
  for (char *host = hosts; host; host = rest, rest = cut(rest, ','), count++) {
    if (count == size) {
      snprintf(why, AL_MESSAGE_SIZE, "the URL names more hosts than %zu", size);
      return 0;
    }
    if (count > 0) all[count] = all[0];
    if (!listed_place(&all[count], host, why)) return 0;
  }
  return count;
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

/* ---- the whole -------------------------------------------------------------------------------------------------- */

static size_t parse(al_settings *settings, size_t size, char *text, char why[AL_MESSAGE_SIZE]) {
  al_url url;
  if (!split(text, &url, why) || !identity(settings, &url, why)) return 0;
  if (url.query && (!check_raw(url.query, "", QUERY, why) || !query(settings, url.query, why))) return 0;
  if (!al_settings_check(settings, why)) return 0;
  return places(settings, size, url.hosts, why);
}

static char *trim(char *text) {
  text += strspn(text, BLANKS);
  size_t length = strlen(text);
  while (length > 0 && strchr(BLANKS, text[length - 1])) length--;
  text[length] = '\0';
  return text;
}

size_t al_settings_urls(al_settings *settings, size_t size, const char *url, char why[AL_MESSAGE_SIZE]) {
  char copy[URL_SIZE];
  size_t length = strlen(url);
  if (length >= sizeof copy) {
    snprintf(why, AL_MESSAGE_SIZE, "the URL is longer than %zu bytes", sizeof copy - 1);
    return 0;
  }
  memcpy(copy, url, length + 1);
  size_t count = parse(settings, size, trim(copy), why);
  explicit_bzero(copy, sizeof copy);
  return count;
}

bool al_settings_url(al_settings *settings, const char *url, char why[AL_MESSAGE_SIZE]) {
  return al_settings_urls(settings, 1, url, why) == 1;
}
