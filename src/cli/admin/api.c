/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/admin/api.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/admin/http.h"
#include "cli/admin/json.h"
#include "cli/common/report.h"

struct admin_api {
  admin_http *http;
  int64_t timeout;
  bool knows_user; /* the user's tags were asked for */
  char hidden[AL_MESSAGE_SIZE];
};

/* Only the columns that json.c reads: without `columns` a queue takes ten times as many bytes. */
static const struct {
  admin_kind kind;
  const char *path;
} lists[] = {
    {ADMIN_QUEUE, "/queues?columns=name,vhost,arguments,owner_pid_details.name,messages,messages_ready,"
                  "messages_unacknowledged"},
    {ADMIN_CONSUMER, "/consumers?columns=queue,arguments,consumer_tag,active,channel_details.name,channel_"
                     "details.connection_name,channel_details.user"},
    {ADMIN_CHANNEL, "/channels?columns=name,number,user,messages_unacknowledged"},
};

/* ---- failures --------------------------------------------------------------------------------------------------- */

static al_code fail(const admin_api *api, al_code code, char message[AL_MESSAGE_SIZE], const char *why) {
  snprintf(message, AL_MESSAGE_SIZE, "%s: %.160s: %.300s", al_code_name(code), admin_http_address(api->http),
           why);
  cli_text_clean(message);
  return code;
}

static al_code code_of(long status) {
  switch (status) {
    case 401:
      return AL_AUTH;
    case 403:
      return AL_REFUSED;
    case 404:
      return AL_NOT_FOUND;
    case 429:
      return AL_UNAVAILABLE;
    default:
      return status >= 500 ? AL_UNAVAILABLE : AL_PROTOCOL;
  }
}

/* What to say of a status where the answer itself gives no reason, or none that helps. */
static const char *hint_of(long status) {
  return status == 401
             ? "a valid user and password are needed, in the URL or in ~/.netrc, and the tag monitoring"
         : status == 404 ? "there is no management API; the plugin rabbitmq_management serves it, at /api "
                           "unless set otherwise"
                         : "this is no answer of a management API";
}

static al_code fail_by_status(const admin_api *api, const admin_answer *answer,
                              char message[AL_MESSAGE_SIZE]) {
  char why[AL_MESSAGE_SIZE];
  json_t *body = json_loadb(answer->text ? answer->text : "", answer->length, 0, NULL);
  /* These say "Login failed", "Not_Authorized" or "Not Found". */
  bool helps = answer->status != 401 && answer->status != 404;
  const char *reason = helps ? json_string_value(json_object_get(body, "reason")) : NULL;
  if (answer->location)
    snprintf(why, sizeof why, "status %ld: it points to %s", answer->status, answer->location);
  else
    snprintf(why, sizeof why, "status %ld: %s", answer->status, reason ? reason : hint_of(answer->status));
  json_decref(body);
  return fail(api, code_of(answer->status), message, why);
}

/* ---- requests --------------------------------------------------------------------------------------------------- */

/* Returns AL_OK and an answer of status 200, or fails. */
static al_code ask(const admin_api *api, const char *path, int64_t until, admin_answer *answer,
                   char message[AL_MESSAGE_SIZE]) {
  char why[AL_MESSAGE_SIZE];
  al_code code = admin_http_get(api->http, path, until, answer, why);
  if (code != AL_OK) return fail(api, code, message, why);
  return answer->status == 200 ? AL_OK : fail_by_status(api, answer, message);
}

static al_code read_list(const admin_api *api, size_t list, int64_t until, admin_rows *rows,
                         char message[AL_MESSAGE_SIZE]) {
  admin_answer answer;
  char why[AL_MESSAGE_SIZE];
  al_code code = ask(api, lists[list].path, until, &answer, message);
  if (code == AL_OK && answer.length == 0) code = fail(api, AL_PROTOCOL, message, "an empty answer");
  if (code == AL_OK && !admin_json_read(rows, answer.text, answer.length, why))
    code = fail(api, AL_PROTOCOL, message, why);
  rows->has[lists[list].kind] = true;
  admin_answer_drop(&answer);
  return code;
}

/* ---- the user --------------------------------------------------------------------------------------------------- */

/* A list; before RabbitMQ 3.9 a text with commas between. */
static bool has_tag(const json_t *tags, const char *tag) {
  size_t index;
  json_t *value;
  if (json_is_string(tags)) return strstr(json_string_value(tags), tag) != NULL;
  json_array_foreach(tags, index, value) {
    if (json_is_string(value) && strcmp(json_string_value(value), tag) == 0) return true;
  }
  return false;
}

static void take_user(admin_api *api, const admin_answer *answer) {
  json_t *user = json_loadb(answer->text ? answer->text : "", answer->length, 0, NULL);
  const json_t *tags = json_object_get(user, "tags");
  const char *name = json_string_value(json_object_get(user, "name"));
  api->knows_user = true;
  api->hidden[0] = '\0';
  if (tags && !has_tag(tags, "monitoring") && !has_tag(tags, "administrator"))
    snprintf(
        api->hidden, sizeof api->hidden,
        "the user %s does not have the tag \"monitoring\": waiters, and holders of permits and fast mutexes, "
        "are not shown",
        name ? name : "of the API");
  cli_text_clean(api->hidden);
  json_decref(user);
}

static al_code read_user(admin_api *api, int64_t until, char message[AL_MESSAGE_SIZE]) {
  admin_answer answer;
  al_code code = ask(api, "/whoami", until, &answer, message);
  if (code == AL_OK) take_user(api, &answer);
  admin_answer_drop(&answer);
  return code;
}

/* ---- the whole -------------------------------------------------------------------------------------------------- */

admin_api *admin_api_new(const char *address, int64_t timeout) {
  admin_api *api = calloc(1, sizeof *api);
  if (!api) cli_fail_no_memory();
  api->http = admin_http_new(address);
  api->timeout = timeout;
  return api;
}

const char *admin_api_address(const admin_api *api) { return admin_http_address(api->http); }

al_code admin_api_read(admin_api *api, admin_rows *rows, char message[AL_MESSAGE_SIZE]) {
  int64_t now = al_system_now();
  int64_t until = api->timeout < AL_NEVER - now ? now + api->timeout : AL_NEVER;
  al_code code = api->knows_user ? AL_OK : read_user(api, until, message);
  for (size_t list = 0; code == AL_OK && list < sizeof lists / sizeof *lists; list++)
    code = read_list(api, list, until, rows, message);
  if (code != AL_OK) api->knows_user = false; /* the next answers may be those of another node */
  return code;
}

const char *admin_api_hidden(const admin_api *api) { return *api->hidden ? api->hidden : NULL; }

void admin_api_drop(admin_api *api) {
  admin_http_drop(api->http);
  free(api);
}
