/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A worker in C, without Lua: it waits for a slot of a semaphore, works for some seconds, and releases the slot.
 *
 *     cc -o worker worker.c $(pkg-config --cflags --libs amqplocks)
 *     AMQP_URL=amqp://guest:guest@localhost ./worker images 10 3
 *
 * This works for ten seconds, beside at most two other workers. The argument SLOTS, here 3, is given once, at
 * deployment: it creates or resizes the semaphore. If the worker is started more than three times, the others wait. The
 * URL may name several nodes of a cluster: amqp://guest:guest@one,two,three. Ctrl-C ends the wait, or the work. The
 * exit status is 0, or 1 if no lock was acquired, or 2 if the lock was lost during the work. */
#include <amqplocks.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NODES_MOST 8

static volatile sig_atomic_t interrupted;

static void interrupt(int signal) { interrupted = signal; }

/* The broker frees whatever the process holds when the process ends. */
static void fail(int status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("worker: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  exit(status);
}

/* Waits for an operation that was just begun. No other function here waits. */
static al_op *await(al_session *session, al_op *op) {
  if (!op) fail(1, "no_memory: there was none left");
  while (!al_op_done(op) && !interrupted) al_native_wait(session, op);
  if (!al_op_done(op)) {
    al_op_drop(op); /* abandons the operation, and the lock that it may be about to get */
    al_session_drop(session);
    fail(1, "interrupted");
  }
  if (al_op_code(op) != AL_OK) fail(1, "%s", al_op_message(op));
  return op;
}

/* For operations that return only success or failure. */
static void carry_out(al_session *session, al_op *op) { al_op_drop(await(session, op)); }

static al_session *connect_to(const char *url) {
  char why[AL_MESSAGE_SIZE];
  al_settings settings[NODES_MOST];
  size_t count = 1;
  al_settings_init(settings);
  if (url) count = al_settings_urls(settings, NODES_MOST, url, why);
  if (count == 0) fail(1, "%s: %s", al_code_name(AL_URL), why);
  al_session *session = al_native_new_list(settings, count);
  if (!session) fail(1, "no_memory: there was none left");
  return session;
}

static al_lock *take_slot(al_session *session, const char *name) {
  al_semaphore *semaphore = al_semaphore_new(session, name, NULL);
  if (!semaphore) fail(1, "no_memory: there was none left");
  al_op *op = await(session, al_semaphore_acquire(semaphore, NULL)); /* NULL: without a timeout */
  al_lock *lock = al_op_lock(op);
  al_op_drop(op);
  al_semaphore_drop(semaphore);
  return lock;
}

/* A moment of work. The session needs no call meanwhile: from the first lock on it has a thread that answers the
 * broker. */
static void work_a_little(void) { nanosleep(&(struct timespec){.tv_nsec = 50 * AL_MILLISECOND}, NULL); }

/* Checks, before each thing that only a holder may do, whether the lock is still held. This costs next to nothing. */
static void work(const al_lock *lock, int64_t time) {
  int64_t end = al_system_now() + time;
  while (al_system_now() < end && !interrupted) {
    al_code code = al_lock_held(lock, al_system_now());
    if (code != AL_OK) fail(2, "%s: %s", al_code_name(code), al_lock_reason(lock));
    work_a_little();
  }
}

int main(int count, char **arguments) {
  char why[AL_MESSAGE_SIZE];
  if (count < 3 || count > 4) fail(1, "usage: worker NAME SECONDS [SLOTS]");
  const char *name = arguments[1];
  if (!al_name_check(name, strlen(name), why)) fail(1, "%s", why);
  setvbuf(stdout, NULL, _IOLBF, 0);
  sigaction(SIGINT, &(struct sigaction){.sa_handler = interrupt}, NULL);
  sigaction(SIGTERM, &(struct sigaction){.sa_handler = interrupt}, NULL);

  al_session *session = connect_to(getenv("AMQP_URL"));
  if (count == 4) carry_out(session, al_admin_resize(session, name, atoi(arguments[3]), NULL));
  al_lock *lock = take_slot(session, name);
  printf("working in slot %d of \"%s\"\n", al_lock_slot(lock), al_lock_name(lock));
  work(lock, atoi(arguments[2]) * AL_SECOND);

  interrupted = 0; /* the rest is quickly done */
  carry_out(session, al_lock_release(lock));
  al_lock_drop(lock);
  carry_out(session, al_session_close(session));
  al_session_drop(session);
  printf("done\n");
  return 0;
}
