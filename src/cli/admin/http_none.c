/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * In place of http.c where there is no libcurl. */
#include <stdlib.h>

#include "cli/admin/http.h"
#include "cli/common/exits.h"
#include "cli/common/report.h"

static _Noreturn void refuse(void) {
  cli_error("this program was built without libcurl (CURL=0), so it cannot ask the management API: "
            "\"amqp-lock-admin ls\" reads what curl(1) has fetched");
  exit(CLI_EXIT_SOFTWARE);
}

admin_http *admin_http_new(const char *address) {
  (void)address;
  refuse();
}

const char *admin_http_address(const admin_http *http) {
  (void)http;
  refuse();
}

al_code admin_http_get(admin_http *http, const char *path, int64_t until, admin_answer *answer,
                       char why[AL_MESSAGE_SIZE]) {
  (void)http, (void)path, (void)until, (void)answer, (void)why;
  refuse();
}

void admin_answer_drop(admin_answer *answer) { (void)answer; }
void admin_http_drop(admin_http *http) { (void)http; }
