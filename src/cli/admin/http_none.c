/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * In place of http.c where there is no libcurl: every request fails. */
#include <stdio.h>

#include "cli/admin/http.h"

const bool admin_http_exists = false;

struct admin_http {
  char nothing;
};

admin_http *admin_http_new(const char *address) {
  static admin_http none;
  (void)address;
  return &none;
}

const char *admin_http_address(const admin_http *http) {
  (void)http;
  return "the management API";
}

al_code admin_http_get(admin_http *http, const char *path, int64_t until, admin_answer *answer,
                       char why[AL_MESSAGE_SIZE]) {
  (void)http, (void)path, (void)until;
  *answer = (admin_answer){0};
  snprintf(why, AL_MESSAGE_SIZE, ADMIN_HTTP_NONE);
  return AL_UNREACHABLE;
}

void admin_answer_drop(admin_answer *answer) { (void)answer; }
void admin_http_drop(admin_http *http) { (void)http; }
