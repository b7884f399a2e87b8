/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/lock/news.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/common/report.h"
#include "cli/lock/notify.h"
#include "cli/lock/status.h"

cli_news cli_news_begin(const cli_options *options) {
  return (cli_news){.options = options, .notify_fd = options->notify ? cli_notify_open() : -1};
}

void cli_news_asked(cli_news *news) {
  news->asked_at = al_system_now();
  news->locks_count = 0;
  news->before = (al_stats){.silence = -1};
}

/* ---- connections ------------------------------------------------------------------------------------------------ */

static void tell_link(const cli_news *news, const char *event, const char *link) {
  cli_status line = cli_status_begin(event);
  cli_status_text(&line, "link", link);
  cli_status_end(&line, news->options->status_fd);
}

/* It may have been down and up again between two looks. */
static void mind_link(const cli_news *news, const char *link, bool was_up, bool is_up, bool is_another) {
  if (was_up && (!is_up || is_another)) tell_link(news, "down", link);
  if (is_up && (!was_up || is_another)) tell_link(news, "up", link);
}

void cli_news_connections(cli_news *news, al_session *session) {
  if (news->options->status_fd < 0) return;
  al_stats now, before = news->before;
  al_session_stats(session, &now, sizeof now);
  mind_link(news, "holder", before.is_up_holder, now.is_up_holder, now.opened_holder != before.opened_holder);
  mind_link(news, "prober", before.is_up_prober, now.is_up_prober, now.opened_prober != before.opened_prober);
  mind_link(news, "quorum", before.is_up_quorum, now.is_up_quorum, now.opened_quorum != before.opened_quorum);
  if (now.blocked != before.blocked) tell_link(news, now.blocked ? "blocked" : "unblocked", "prober");
  news->before = now;
}

/* ---- the acquire ------------------------------------------------------------------------------------------------ */

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

static void put_code(cli_status *line, al_code code, const char *message) {
  cli_status_text(line, "code", al_code_name(code));
  cli_status_text(line, "message", message);
}

static double seconds_since(int64_t then) { return (double)(al_system_now() - then) / (double)AL_SECOND; }

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
  cli_status line = cli_status_begin("failed");
  put_code(&line, code, message);
  cli_status_text(&line, "name", news->options->name);
  cli_status_seconds(&line, "waited", seconds_since(news->asked_at));
  cli_status_end(&line, news->options->status_fd);
}

/* ---- the lock --------------------------------------------------------------------------------------------------- */

static const cli_news_lock *note(cli_news *news, const al_lock *lock) {
  cli_news_lock *its = &news->locks[news->locks_count++];
  *its = (cli_news_lock){
      .kind = al_lock_kind_of(lock), .slot = al_lock_slot(lock), .acquired_at = al_system_now()};
  snprintf(its->name, sizeof its->name, "%s", al_lock_name(lock));
  snprintf(its->ticket, sizeof its->ticket, "%s", al_lock_ticket(lock));
  return its;
}

static const cli_news_lock *noted(const cli_news *news, const al_lock *lock) {
  for (int i = 0; i < news->locks_count; i++)
    if (strcmp(news->locks[i].ticket, al_lock_ticket(lock)) == 0) return &news->locks[i];
  return NULL;
}

static void put_lock(cli_status *line, const cli_news_lock *lock) {
  cli_status_text(line, "name", lock->name);
  cli_status_text(line, "kind", al_kind_name(lock->kind));
  cli_status_text(line, "ticket", lock->ticket);
  if (lock->slot) cli_status_number(line, "slot", lock->slot);
}

static void put_held(cli_status *line, const cli_news_lock *lock) {
  if (!lock) return; /* it was lost before it was told of */
  put_lock(line, lock);
  cli_status_seconds(line, "held", seconds_since(lock->acquired_at));
}

static void tell_held(const cli_news *news, const char *event, const cli_news_lock *lock) {
  cli_status line = cli_status_begin(event);
  put_held(&line, lock);
  cli_status_end(&line, news->options->status_fd);
}

/* Another user may have put a link or a FIFO there: it is not followed, and no reader is waited for. */
static void make_file(const cli_news *news) {
  const char *path = news->options->held_file;
  int how = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  int fd = path ? open(path, how, 0644) : -1;
  if (path && (fd < 0 || dprintf(fd, "%s\n", news->locks[0].ticket) < 0))
    cli_warn("--held-file %s: %s", path, strerror(errno));
  if (fd >= 0) close(fd);
}

static void remove_file(const cli_news *news) {
  if (news->options->held_file) unlink(news->options->held_file);
}

void cli_news_acquired(cli_news *news, const al_lock *lock) {
  char words[AL_LOCK_WORDS];
  cli_progress("acquired %s, ticket %s", al_lock_words(lock, words), al_lock_ticket(lock));
  cli_status line = cli_status_begin("acquired");
  put_lock(&line, note(news, lock));
  if (al_lock_fence(lock)) cli_status_number(&line, "fence", (double)al_lock_fence(lock));
  cli_status_seconds(&line, "acquired_at", al_lock_acquired_at(lock));
  cli_status_seconds(&line, "waited", seconds_since(news->asked_at));
  cli_status_end(&line, news->options->status_fd);
  if (news->locks_count == 1) make_file(news); /* all of them are held */
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
  char words[AL_LOCK_WORDS];
  cli_warn("revoked: another client asks for %s%s", al_lock_words(lock, words),
           news->options->revoke_signal ? "" : "; ignored, as there is no --on-revoke");
  cli_notify_status(news->notify_fd, "asked to release \"%s\"", al_lock_name(lock));
  tell_held(news, "revoked", noted(news, lock));
}

void cli_news_lost(cli_news *news, const al_lock *lock, al_code code, const char *reason) {
  char words[AL_LOCK_WORDS];
  remove_file(news);
  cli_error("%s: %s: %s", al_code_name(code), al_lock_words(lock, words), reason);
  cli_notify_status(news->notify_fd, "lost \"%s\": %s", al_lock_name(lock), reason);
  cli_status line = cli_status_begin("lost");
  put_code(&line, code, reason);
  put_held(&line, noted(news, lock));
  cli_status_end(&line, news->options->status_fd);
}

void cli_news_expired(cli_news *news, const cli_held *held, const char *consequence) {
  double most = (double)news->options->at_most / (double)AL_SECOND;
  cli_error("expired: \"%s\" was held for %g s (--at-most); %s", news->options->name, most, consequence);
  cli_notify_status(news->notify_fd, "held \"%s\" for %g s", news->options->name, most);
  for (int i = 0; i < held->count; i++) tell_held(news, "expired", noted(news, held->locks[i]));
}

void cli_news_keeping(const cli_news *news, int64_t until) {
  double left = (double)(until - al_system_now()) / (double)AL_SECOND;
  cli_progress("keeping \"%s\" for %.0f s more (--at-least)", news->options->name, left);
  cli_notify_status(news->notify_fd, "keeping \"%s\"", news->options->name);
}

void cli_news_ended(cli_news *news, int status) {
  cli_status line = cli_status_begin("ended");
  if (WIFSIGNALED(status))
    cli_status_number(&line, "signal", WTERMSIG(status));
  else
    cli_status_number(&line, "status", WEXITSTATUS(status));
  cli_status_end(&line, news->options->status_fd);
}

void cli_news_releasing(const cli_news *news) { remove_file(news); }

void cli_news_released(cli_news *news) {
  cli_progress("released \"%s\"", news->options->name);
  for (int i = news->locks_count - 1; i >= 0; i--) tell_held(news, "released", &news->locks[i]);
}
