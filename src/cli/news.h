/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * What amqp-lock tells, to all that want to know: people (report.h), programs (status.h) and systemd (notify.h). */
#ifndef CLI_NEWS_H
#define CLI_NEWS_H

#include "amqplocks.h"
#include "cli/options.h"

typedef struct cli_news {
  const cli_options *options;
  int notify_fd;
  int64_t told_at; /* when the progress was last told, of al_system_now() */
} cli_news;

cli_news cli_news_begin(const cli_options *options);

/* The acquire waits, for `waited` nanoseconds and for this reason. Told at most once a second. */
void cli_news_waiting(cli_news *news, int64_t waited, const char *reason);

void cli_news_failed(cli_news *news, al_code code, const char *message);
void cli_news_acquired(cli_news *news, const al_lock *lock);
void cli_news_started(cli_news *news, int pid);
void cli_news_revoked(cli_news *news, const al_lock *lock);
void cli_news_lost(cli_news *news, const al_lock *lock, al_code code, const char *reason);
void cli_news_ended(cli_news *news, int status);
void cli_news_released(cli_news *news);

/* Writes what the lock is, such as: mutex "db". Returns `out`. */
const char *cli_lock_words(const al_lock *lock, char out[AL_NAME_SIZE + 64]);

/* Returns the name of a kind, as in AMQP_LOCK_KIND: "mutex", "fast_mutex", "slot", "permit", "read",
 * "write". */
const char *cli_kind_name(al_lock_kind kind);

#endif
