/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * What amqp-lock tells, to all that want to know: people (report.h), programs (status.h), systemd (notify.h), and those
 * that look for the file of --held-file, such as probes of Kubernetes. */
#ifndef CLI_LOCK_NEWS_H
#define CLI_LOCK_NEWS_H

#include "amqplocks.h"
#include "cli/lock/held.h"
#include "cli/lock/options.h"

/* A lock as it was acquired, for what is told when it is no more. */
typedef struct cli_news_lock {
  char name[AL_NAME_SIZE], ticket[AL_TICKET_SIZE];
  al_lock_kind kind;
  int slot;
  int64_t acquired_at; /* of al_system_now() */
} cli_news_lock;

typedef struct cli_news {
  const cli_options *options;
  int notify_fd;
  int64_t told_at;  /* when the progress was last told, of al_system_now() */
  int64_t asked_at; /* when the acquire began */
  cli_news_lock locks[CLI_HELD_MOST];
  int locks_count;
  al_stats before; /* of the session, when its connections were last looked at */
} cli_news;

cli_news cli_news_begin(const cli_options *options);

/* An acquire begins, by a new session. */
void cli_news_asked(cli_news *news);

/* Tells, on --status-fd, which connections have come up or gone down since the last look, and an alarm. */
void cli_news_connections(cli_news *news, al_session *session);

/* The acquire waits, for `waited` nanoseconds and for this reason. Told at most once a second. */
void cli_news_waiting(cli_news *news, int64_t waited, const char *reason);

void cli_news_failed(cli_news *news, al_code code, const char *message);
void cli_news_acquired(cli_news *news, const al_lock *lock);
void cli_news_started(cli_news *news, int pid);
void cli_news_revoked(cli_news *news, const al_lock *lock);
void cli_news_lost(cli_news *news, const al_lock *lock, al_code code, const char *reason);
void cli_news_expired(cli_news *news, const cli_held *held, const char *consequence); /* --at-most */
void cli_news_ended(cli_news *news, int status);
void cli_news_keeping(const cli_news *news, int64_t until); /* --at-least */
void cli_news_releasing(const cli_news *news);
void cli_news_released(cli_news *news);

#endif
