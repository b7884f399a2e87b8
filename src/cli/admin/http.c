/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/admin/http.h"

#include <curl/curl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common/report.h"

#define BODY_MOST ((size_t)1 << 30) /* bytes; a queue takes about 300 */

const bool admin_http_exists = true;

struct admin_http {
  CURL *curl;
  char *address;
  char problem[CURL_ERROR_SIZE];
};

/* ---- the address ------------------------------------------------------------------------------------------------ */

/* The address is not told: it may have a password. */
static _Noreturn void refuse_address(void) {
  cli_usage_error("option --api takes an address such as http://localhost:15672/api");
}

/* Returns a part of the address, which the caller frees with curl_free(), or NULL. */
static char *part_of(CURLU *url, CURLUPart part, unsigned flags) {
  char *text = NULL;
  CURLUcode code = curl_url_get(url, part, &text, flags);
  if (code == CURLUE_OUT_OF_MEMORY) cli_fail_no_memory();
  return code == CURLUE_OK ? text : NULL;
}

static void check_scheme(CURLU *url) {
  char *scheme = part_of(url, CURLUPART_SCHEME, 0);
  if (!scheme || (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0)) refuse_address();
  curl_free(scheme);
}

/* Moves user and password from the address to the requests. */
static void take_user(admin_http *http, CURLU *url) {
  char *user = part_of(url, CURLUPART_USER, CURLU_URLDECODE);
  char *password = part_of(url, CURLUPART_PASSWORD, CURLU_URLDECODE);
  if (user) curl_easy_setopt(http->curl, CURLOPT_USERNAME, user);
  if (password) curl_easy_setopt(http->curl, CURLOPT_PASSWORD, password);
  curl_free(user);
  curl_free(password);
  curl_url_set(url, CURLUPART_USER, NULL, 0);
  curl_url_set(url, CURLUPART_PASSWORD, NULL, 0);
}

static void take_address(admin_http *http, const char *address) {
  CURLU *url = curl_url();
  if (!url) cli_fail_no_memory();
  if (curl_url_set(url, CURLUPART_URL, address, 0) != CURLUE_OK) refuse_address();
  check_scheme(url);
  take_user(http, url);
  char *shown = part_of(url, CURLUPART_URL, 0);
  http->address = shown ? strdup(shown) : NULL;
  if (!http->address) cli_fail_no_memory();
  curl_free(shown);
  curl_url_cleanup(url);
}

/* ---- a request -------------------------------------------------------------------------------------------------- */

/* Of libcurl: takes a part of the body. Another result than its length ends the request. */
static size_t take_body(char *bytes, size_t one, size_t length, void *context) {
  admin_answer *answer = context;
  (void)one; /* it is 1 */
  if (length > BODY_MOST - answer->length) return 0;
  if (answer->length + length > answer->size) {
    size_t size = answer->size ? 2 * answer->size : 65536;
    if (size < answer->length + length) size = answer->length + length;
    char *text = realloc(answer->text, size);
    if (!text) cli_fail_no_memory();
    answer->text = text;
    answer->size = size;
  }
  memcpy(answer->text + answer->length, bytes, length);
  answer->length += length;
  return length;
}

static al_code code_of(CURLcode result) {
  switch (result) {
    case CURLE_OK:
      return AL_OK;
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_GOT_NOTHING:
    case CURLE_PARTIAL_FILE:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
      return AL_UNREACHABLE;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
      return AL_TLS;
    case CURLE_WRITE_ERROR:
      return AL_LIMIT;
    case CURLE_OUT_OF_MEMORY:
      cli_fail_no_memory();
    default:
      return AL_PROTOCOL;
  }
}

static void set_request(admin_http *http, const char *path, int64_t until, admin_answer *answer) {
  int64_t left = (until - al_system_now()) / (AL_SECOND / 1000);
  char *page = malloc(strlen(http->address) + strlen(path) + 1);
  if (!page) cli_fail_no_memory();
  sprintf(page, "%s%s", http->address, path);
  if (curl_easy_setopt(http->curl, CURLOPT_URL, page) != CURLE_OK) cli_fail_no_memory();
  free(page);
  left = left < 1 ? 1 : left > INT_MAX ? INT_MAX : left; /* 0 would be for ever */
  curl_easy_setopt(http->curl, CURLOPT_TIMEOUT_MS, (long)left);
  curl_easy_setopt(http->curl, CURLOPT_WRITEDATA, answer);
}

static void take_heading(admin_http *http, admin_answer *answer) {
  const char *location = NULL;
  curl_easy_getinfo(http->curl, CURLINFO_RESPONSE_CODE, &answer->status);
  curl_easy_getinfo(http->curl, CURLINFO_REDIRECT_URL, &location);
  if (location && !(answer->location = strdup(location))) cli_fail_no_memory();
}

al_code admin_http_get(admin_http *http, const char *path, int64_t until, admin_answer *answer,
                       char why[AL_MESSAGE_SIZE]) {
  *answer = (admin_answer){0};
  http->problem[0] = '\0';
  set_request(http, path, until, answer);
  CURLcode result = curl_easy_perform(http->curl);
  al_code code = code_of(result);
  if (code == AL_OK)
    take_heading(http, answer);
  else
    snprintf(why, AL_MESSAGE_SIZE, "%s",
             code == AL_LIMIT ? "it has more than a gigabyte"
             : *http->problem ? http->problem
                              : curl_easy_strerror(result));
  return code;
}

/* ---- the whole -------------------------------------------------------------------------------------------------- */

admin_http *admin_http_new(const char *address) {
  admin_http *http = calloc(1, sizeof *http);
  const char *authorities = getenv("SSL_CERT_FILE"); /* which curl(1) reads, and libcurl does not */
  if (!http || curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK || !(http->curl = curl_easy_init()))
    cli_fail_no_memory();
  take_address(http, address);
  curl_easy_setopt(http->curl, CURLOPT_ERRORBUFFER, http->problem);
  curl_easy_setopt(http->curl, CURLOPT_WRITEFUNCTION, take_body);
  curl_easy_setopt(http->curl, CURLOPT_NETRC, (long)CURL_NETRC_OPTIONAL);
  curl_easy_setopt(http->curl, CURLOPT_USERAGENT, "amqp-lock-admin");
  if (authorities && *authorities) curl_easy_setopt(http->curl, CURLOPT_CAINFO, authorities);
  return http;
}

const char *admin_http_address(const admin_http *http) { return http->address; }

void admin_answer_drop(admin_answer *answer) {
  free(answer->text);
  free(answer->location);
  *answer = (admin_answer){0};
}

void admin_http_drop(admin_http *http) {
  curl_easy_cleanup(http->curl);
  curl_global_cleanup();
  free(http->address);
  free(http);
}
