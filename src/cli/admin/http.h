/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * GET requests by libcurl. `make cli CURL=0` builds http_none.c in place of http.c: then there is no
 * libcurl, and every request fails. */
#ifndef CLI_ADMIN_HTTP_H
#define CLI_ADMIN_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "amqplocks.h"

typedef struct admin_http admin_http;

extern const bool admin_http_exists; /* false without libcurl */
#define ADMIN_HTTP_NONE                                                                                      \
  "not asked, as this program was built without libcurl (CURL=0): give what curl(1) prints to ls -"

typedef struct admin_answer {
  long status; /* such as 200 */
  char *text;  /* the body; NULL: it is empty */
  size_t length, size;
  char *location; /* where the server points to; NULL: nowhere */
} admin_answer;

/* Requests of pages below `address`. A user and a password may stand in it; otherwise, or without the password, ~/.netrc
 * is read. Ends the program with status 64 if it is no address of HTTP. */
admin_http *admin_http_new(const char *address);

/* The address without user and password. */
const char *admin_http_address(const admin_http *http);

/* Sends GET for the page `path`, which begins with "/", and waits for the answer until `until` (of al_system_now()).
 * Returns AL_OK and the answer, with whatever status. Returns AL_UNREACHABLE, AL_TLS, AL_LIMIT or AL_PROTOCOL if there
 * is none; `why` then says why. In both cases admin_answer_drop() frees what `answer` has. */
al_code admin_http_get(admin_http *http, const char *path, int64_t until, admin_answer *answer,
                       char why[AL_MESSAGE_SIZE]);

void admin_answer_drop(admin_answer *answer);
void admin_http_drop(admin_http *http);

#endif
