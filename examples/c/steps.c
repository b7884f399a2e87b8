/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A job in C that only one process does at a time, step by step:
 *
 *     cc -o steps steps.c $(pkg-config --cflags --libs amqplocks)
 *     AMQP_URL=amqp://guest:guest@localhost ./steps nightly 100
 *
 * It waits up to a minute for the mutex "nightly", also for a broker that is not there yet. Before each of its 100 steps
 * it asks whether it still holds the mutex. It stops between two steps at Ctrl-C or SIGTERM, and when an administrator
 * asks for the mutex. However it ends, it releases what it has taken. The exit status is 0 (all steps are done), 1 (no
 * lock), 2 (the lock was lost: the steps that are done may overlap with those of the next process), or 3 (stopped). */
#include <amqplocks.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define STEP (50 * AL_MILLISECOND)

enum { DONE = 0, NO_LOCK = 1, LOST = 2, STOPPED = 3 };

/* Returns a descriptor that becomes readable when the process is asked to end. The signals are blocked before the
 * session makes its thread. So none of them arrives unnoticed, just before a wait. */
static int end_requests(void) {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  sigprocmask(SIG_BLOCK, &ends, NULL);
  return signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK);
}

static bool is_readable(int fd) { return poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0) > 0; }

static al_session *connect_to(const char *url) {
  char why[AL_MESSAGE_SIZE];
  al_settings settings;
  al_settings_init(&settings);
  if (!url || al_settings_url(&settings, url, why))
    return al_native_new(&settings); /* connects when it is used */
  fprintf(stderr, "steps: %s: %s\n", al_code_name(AL_URL), why);
  return NULL;
}

/* Returns NULL if there is no lock within a minute, or if the process is asked to end. */
static al_lock *take(al_session *session, al_mutex *mutex, int ends) {
  char why[AL_MESSAGE_SIZE];
  al_acquire_options options;
  al_acquire_options_init(&options);
  options.timeout = 60 * AL_SECOND;
  options.patient = true;
  al_op *op = al_mutex_acquire(mutex, &options);
  while (op && !al_op_done(op))
    if (al_native_wait_fd(session, op, ends, AL_NEVER)) {
      al_op_drop(op); /* gives up the place in line, or the lock */
      fprintf(stderr, "steps: stopped while it waited\n");
      return NULL;
    }
  al_lock *lock = al_acquire_wait(session, op, NULL, why); /* the operation is done: this takes its lock */
  if (!lock) fprintf(stderr, "steps: %s\n", why);
  return lock;
}

/* Stands for a step of the work. The session's thread answers the broker meanwhile. */
static void do_step(al_session *session, int ends) {
  int64_t end = al_system_now() + STEP;
  while (al_system_now() < end && !al_native_wait_fd(session, NULL, ends, end)) continue;
}

static int work(al_session *session, const al_lock *lock, int steps, int ends) {
  for (int done = 0; done < steps; done++) {
    al_code code = al_lock_held(lock, al_system_now()); /* costs a look at the clock */
    bool is_stopped = al_lock_revoked(lock) || is_readable(ends);
    if (code != AL_OK || is_stopped)
      fprintf(stderr, "steps: after %d of %d: %s\n", done, steps,
              code != AL_OK ? al_code_name(code) : "stopped");
    if (code != AL_OK) return LOST;
    if (is_stopped) return STOPPED;
    do_step(session, ends);
  }
  return DONE;
}

/* Returns LOST if the lock was not held up to here: the last step was not protected to its end. */
static int release(al_session *session, al_lock *lock, int status) {
  char why[AL_MESSAGE_SIZE];
  al_code code = al_op_wait(session, al_lock_release(lock), why);
  al_lock_drop(lock);
  if (code != AL_OK) fprintf(stderr, "steps: %s\n", why);
  return code == AL_LOST ? LOST : status;
}

static int run(al_session *session, const char *name, int steps, int ends) {
  al_mutex *mutex = al_mutex_new(session, name, NULL);
  al_lock *lock = mutex ? take(session, mutex, ends) : NULL;
  int status = NO_LOCK;
  if (lock) {
    printf("working\n");
    fflush(stdout);
    status = release(session, lock, work(session, lock, steps, ends));
  }
  al_mutex_drop(mutex);
  return status;
}

int main(int count, char **arguments) {
  char why[AL_MESSAGE_SIZE] = "usage: steps NAME COUNT";
  if (count != 3 || !al_name_check(arguments[1], strlen(arguments[1]), why)) {
    fprintf(stderr, "steps: %s\n", why);
    return NO_LOCK;
  }
  int ends = end_requests();
  al_session *session = connect_to(getenv("AMQP_URL"));
  int status = session ? run(session, arguments[1], atoi(arguments[2]), ends) : NO_LOCK;
  if (session) al_op_wait(session, al_session_close(session), NULL);
  al_session_drop(session);
  return status;
}
