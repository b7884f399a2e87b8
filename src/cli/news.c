/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/news.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "cli/notify.h"
#include "cli/report.h"
#include "cli/status.h"

const char *cli_kind_name(al_lock_kind kind) {
  static const char *const names[] = {
      [AL_LOCK_SLOT] = "slot", [AL_LOCK_MUTEX] = "mutex", [AL_LOCK_PERMIT] = "permit",
      [AL_LOCK_READ] = "read", [AL_LOCK_WRITE] = "write", [AL_LOCK_FAST_MUTEX] = "fast_mutex"};
  return names[kind];
}

const char *cli_lock_words(const al_lock *lock, char out[AL_NAME_SIZE + 64]) {
  static const char *const words[] = {[AL_LOCK_MUTEX] = "mutex",
                                      [AL_LOCK_PERMIT] = "a permit of",
                                      [AL_LOCK_READ] = "the read lock on",
                                      [AL_LOCK_WRITE] = "the write lock on",
                                      [AL_LOCK_FAST_MUTEX] = "fast mutex"};
  al_lock_kind kind = al_lock_kind_of(lock);
  if (kind == AL_LOCK_SLOT)
    snprintf(out, AL_NAME_SIZE + 64, "slot %d of \"%s\"", al_lock_slot(lock), al_lock_name(lock));
  else
    snprintf(out, AL_NAME_SIZE + 64, "%s \"%s\"", words[kind], al_lock_name(lock));
  return out;
}

cli_news cli_news_begin(const cli_options *options) {
  return (cli_news){.options = options, .notify_fd = options->notify ? cli_notify_open() : -1};
}

void cli_news_waiting(cli_news *news, int64_t waited, const char *reason) {
  int64_t now = al_system_now();
  if (news->told_at && now < news->told_at + AL_SECOND) return;
  news->told_at = now;
  char time[32] = "";
  if (waited >= AL_SECOND) snprintf(time, sizeof time, " for %ld s", (long)(waited / AL_SECOND));
  cli_progress("waiting%s: %s", time, reason);
  cli_notify_status(news->notify_fd, "waiting%s for \"%s\": %s", time, news->options->name, reason);
  cli_status line = cli_status_begin("waiting");
  cli_status_seconds(&line, "seconds", (double)waited / (double)AL_SECOND);
  cli_status_text(&line, "reason", reason);
  cli_status_end(&line, news->options->status_fd);
}

static void tell_code(const cli_news *news, const char *event, al_code code, const char *message) {
  cli_status line = cli_status_begin(event);
  cli_status_text(&line, "code", al_code_name(code));
  cli_status_text(&line, "message", message);
  cli_status_end(&line, news->options->status_fd);
}

static bool is_conflict(al_code code) {
  return code == AL_TIMEOUT || code == AL_BUSY || code == AL_CONTENDED;
}

/* With -q a conflict is no error: cron mails what is printed. */
void cli_news_failed(cli_news *news, al_code code, const char *message) {
  if (is_conflict(code))
    cli_warn("%s", message);
  else
    cli_error("%s", message);
  cli_notify_status(news->notify_fd, "%s", message);
  tell_code(news, "failed", code, message);
}

void cli_news_acquired(cli_news *news, const al_lock *lock) {
  char words[AL_NAME_SIZE + 64];
  cli_progress("acquired %s, ticket %s", cli_lock_words(lock, words), al_lock_ticket(lock));
  cli_status line = cli_status_begin("acquired");
  cli_status_text(&line, "name", al_lock_name(lock));
  cli_status_text(&line, "kind", cli_kind_name(al_lock_kind_of(lock)));
  cli_status_text(&line, "ticket", al_lock_ticket(lock));
  if (al_lock_slot(lock)) cli_status_number(&line, "slot", al_lock_slot(lock));
  if (al_lock_fence(lock)) cli_status_number(&line, "fence", (double)al_lock_fence(lock));
  cli_status_seconds(&line, "acquired_at", al_lock_acquired_at(lock));
  cli_status_end(&line, news->options->status_fd);
}

void cli_news_started(cli_news *news, int pid) {
  const cli_options *options = news->options;
  cli_notify_send(news->notify_fd, "READY=1");
  cli_notify_status(news->notify_fd, "holding \"%s\"", options->name);
  if (pid == 0) return;
  cli_status line = cli_status_begin("started");
  cli_status_number(&line, "pid", pid);
  cli_status_end(&line, options->status_fd);
}

void cli_news_revoked(cli_news *news, const al_lock *lock) {
  char words[AL_NAME_SIZE + 64];
  cli_warn("revoked: an administrator asks for %s%s", cli_lock_words(lock, words),
           news->options->revoke_signal ? "" : "; ignored, as there is no --on-revoke");
  cli_notify_status(news->notify_fd, "asked to release \"%s\"", al_lock_name(lock));
  cli_status line = cli_status_begin("revoked");
  cli_status_end(&line, news->options->status_fd);
}

void cli_news_lost(cli_news *news, const al_lock *lock, al_code code, const char *reason) {
  char words[AL_NAME_SIZE + 64];
  cli_error("%s: %s: %s", al_code_name(code), cli_lock_words(lock, words), reason);
  cli_notify_status(news->notify_fd, "lost \"%s\": %s", al_lock_name(lock), reason);
  tell_code(news, "lost", code, reason);
}

void cli_news_ended(cli_news *news, int status) {
  cli_status line = cli_status_begin("ended");
  if (WIFSIGNALED(status))
    cli_status_number(&line, "signal", WTERMSIG(status));
  else
    cli_status_number(&line, "status", WEXITSTATUS(status));
  cli_status_end(&line, news->options->status_fd);
}

void cli_news_released(cli_news *news) {
  cli_progress("released \"%s\"", news->options->name);
  cli_status line = cli_status_begin("released");
  cli_status_end(&line, news->options->status_fd);
}
