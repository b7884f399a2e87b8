/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * What a program in C does with the library, step by step, as its output tells: interface WHAT NAME, of a mutex. */
#include "program.h"
#include <pthread.h>
#include <signal.h>
#include <time.h>

static al_session *session;
static const char *mutex_name;
static al_mutex *mutex;

static void say(const char *text) {
  puts(text);
  fflush(stdout);
}

static void begin(const char *name) {
  mutex_name = name;
  session = connect_with(60);
  mutex = al_mutex_new(session, name, NULL);
  CHECK(mutex);
}

static al_lock *take(void) {
  char message[AL_MESSAGE_SIZE];
  al_code code;
  al_lock *lock = al_acquire_wait(session, al_mutex_acquire(mutex, NULL), &code, message);
  if (!lock) printf("failed: %s\n", message);
  CHECK(lock && code == AL_OK && message[0] == '\0');
  return lock;
}

static void end(al_lock *lock) {
  CHECK(al_op_wait(session, al_lock_release(lock), NULL) == AL_OK);
  al_lock_drop(lock);
  al_mutex_drop(mutex);
  al_session_drop(session);
}

/* ---- patient ---------------------------------------------------------------------------------------------------- */

static al_op *acquire_patiently(void) {
  al_acquire_options options;
  al_acquire_options_init(&options);
  CHECK(!options.patient);
  options.patient = true;
  return al_mutex_acquire(mutex, &options);
}

static void patient(void) {
  char reason[AL_MESSAGE_SIZE];
  bool told = false;
  al_op *op = acquire_patiently();
  while (!al_op_done(op)) {
    al_native_wait(session, op);
    if (told || al_op_waiting(op, reason) < 0) continue;
    told = true;
    printf("waits: %s\n", reason);
    fflush(stdout);
  }
  al_lock *lock = al_op_lock(op);
  if (!lock) {
    printf("failed: %s\n", al_op_message(op));
    exit(1);
  }
  al_op_drop(op);
  CHECK(al_lock_held(lock, al_system_now()) == AL_OK);
  say("held");
  end(lock);
  say("released");
}

/* The operation is dropped while it pauses, while it connects, and before it was ever served. */
static void give_up(void) {
  char reason[AL_MESSAGE_SIZE];
  for (int rounds = 0; rounds < 4; rounds++) {
    al_op *op = acquire_patiently();
    for (int i = 0; i < rounds; i++) al_native_wait(session, op);
    if (rounds == 3)
      while (al_op_waiting(op, reason) < 0) al_native_wait(session, op);
    CHECK(!al_op_done(op));
    al_op_drop(op);
  }
  al_op *op = acquire_patiently();
  al_mutex_drop(mutex); /* before the operation, which has it still */
  while (al_op_waiting(op, reason) < 0) al_native_wait(session, op);
  al_session_abort(session);
  CHECK(al_op_done(op) && al_op_code(op) == AL_CLOSED);
  al_op_drop(op);
  al_session_drop(session);
  say("given up");
}

/* ---- waiting for something else as well -------------------------------------------------------------------------- */

static int ends[2];
static volatile sig_atomic_t signals;
static pthread_t main_thread;

static void count_signal(int number) {
  (void)number;
  signals++;
}

/* A signal may come just before a call, which does not return then: it is sent until one was seen. */
static void *signal_and_write(void *argument) {
  do {
    nanosleep(&(struct timespec){.tv_nsec = 20 * AL_MILLISECOND}, NULL);
    CHECK(pthread_kill(main_thread, SIGUSR1) == 0);
  } while (signals < 1000);
  CHECK(write(ends[1], "x", 1) == 1);
  return argument;
}

static void waits_with(al_op *op) {
  pthread_t thread;
  char byte;
  signals = 0;
  CHECK(pthread_create(&thread, NULL, signal_and_write, NULL) == 0);
  while (signals == 0) CHECK(!al_native_wait_fd(session, op, ends[0], AL_NEVER));
  signals = 1000;
  while (!al_native_wait_fd(session, op, ends[0], AL_NEVER)) CHECK(!op || !al_op_done(op));
  pthread_join(thread, NULL);
  for (int i = 0; i < 3; i++) CHECK(al_native_wait_fd(session, op, ends[0], 0)); /* it stays readable: nothing reads */
  CHECK(read(ends[0], &byte, 1) == 1);
  int64_t until = al_system_now() + 20 * AL_MILLISECOND;
  while (al_system_now() < until) CHECK(!al_native_wait_fd(session, op, ends[0], until));
  int at_end[2], closed = dup(ends[0]);
  CHECK(pipe(at_end) == 0 && close(at_end[1]) == 0 && close(closed) == 0);
  CHECK(al_native_wait_fd(session, op, at_end[0], AL_NEVER) && al_native_wait_fd(session, op, closed, AL_NEVER));
  close(at_end[0]);
}

static void descriptors(void) {
  main_thread = pthread_self();
  CHECK(pipe(ends) == 0);
  sigaction(SIGUSR1, &(struct sigaction){.sa_handler = count_signal}, NULL);
  waits_with(NULL); /* without a connection */
  al_lock *lock = take();
  waits_with(NULL);
  al_session *own = session;
  al_mutex *held = mutex;
  begin(al_lock_name(lock));
  al_op *op = al_mutex_acquire(mutex, NULL); /* which waits, as the other session has it */
  char reason[AL_MESSAGE_SIZE];
  while (al_op_waiting(op, reason) < 0) al_native_wait(session, op);
  waits_with(op);
  CHECK(write(ends[1], "x", 1) == 1);
  CHECK(al_op_wait(own, al_lock_release(lock), NULL) == AL_OK);
  while (!al_op_done(op)) CHECK(al_native_wait_fd(session, op, ends[0], AL_NEVER)); /* which does not keep it from its work */
  CHECK(al_native_wait_fd(session, op, ends[0], AL_NEVER)); /* nor does an operation that is done */
  CHECK(read(ends[0], reason, 1) == 1);
  CHECK(!al_native_wait_fd(session, op, ends[0], AL_NEVER));
  al_lock_drop(lock);
  al_mutex_drop(held);
  al_session_drop(own);
  lock = al_op_lock(op);
  al_op_drop(op);
  end(lock);
  say("all so");
}

/* Does nothing but wait until its lock is not what it was. */
static void idle_with(al_lock *lock) {
  CHECK(al_lock_certain_until(lock) > al_system_now());
  say("held");
  al_note note;
  bool is_revoked = false;
  int calls = 0;
  for (;; calls++) {
    al_native_wait_fd(session, NULL, -1, AL_NEVER);
    if (!is_revoked && al_lock_revoked(lock)) say("revoked");
    is_revoked = al_lock_revoked(lock);
    if (al_lock_held(lock, al_system_now()) == AL_LOST) break;
    CHECK(calls < 100000); /* an alert that the program does not fetch does not keep it awake */
  }
  CHECK(al_lock_certain_until(lock) == 0);
  say("lost");
  while (al_session_news(session, &note)) {
    CHECK(note.at > 0 && note.at <= al_system_now());
    printf("%s %s [%s] %s\n", note.is_warning ? "warning" : "info", al_code_name(note.code), note.name, note.text);
  }
  fflush(stdout);
  al_lock_drop(lock);
  al_mutex_drop(mutex);
  al_session_drop(session);
}

static void idle(void) { idle_with(take()); }

static void idle_quorum(void) {
  al_fast_mutex *quorum = al_quorum_mutex_new(session, mutex_name);
  al_lock *lock = succeed(session, al_fast_mutex_acquire(quorum, NULL));
  al_fast_mutex_drop(quorum);
  idle_with(lock);
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

static void told_nothing(void) {
  al_note note;
  if (!al_session_news(session, &note)) return;
  fprintf(stderr, "a note: %s\n", note.text);
  exit(1);
}

static void waits_blocking(void) {
  char message[AL_MESSAGE_SIZE] = "x";
  al_code code = AL_OK;
  CHECK(strcmp(al_version(), AL_VERSION) == 0);
  CHECK(al_op_wait(session, NULL, message) == AL_NO_MEMORY && strncmp(message, "no_memory: ", 11) == 0);
  CHECK(al_op_wait(session, NULL, NULL) == AL_NO_MEMORY);
  CHECK(!al_acquire_wait(session, NULL, &code, message) && code == AL_NO_MEMORY);
  CHECK(!al_acquire_wait(session, NULL, NULL, NULL));
  CHECK(al_op_wait(session, al_session_open(session), message) == AL_OK && message[0] == '\0');
  CHECK(!al_acquire_wait(session, al_session_open(session), &code, message) && code == AL_OK);
  CHECK(al_op_wait(session, al_mutex_acquire(mutex, NULL), message) == AL_OK); /* released again */
  al_lock *lock = take();
  int64_t certain = al_lock_certain_until(lock), now = al_system_now();
  CHECK(certain > now && certain < now + 120 * AL_SECOND); /* two heartbeats */
  CHECK(al_lock_held(lock, certain - 1) == AL_OK || al_lock_certain_until(lock) != certain);
  CHECK(!al_acquire_wait(session, al_mutex_acquire(mutex, NULL), &code, message));
  CHECK(code == AL_DEADLOCK && strncmp(message, "deadlock: ", 10) == 0);
  CHECK(al_op_wait(session, al_lock_release(lock), message) == AL_OK && al_lock_certain_until(lock) == 0);
  CHECK(al_op_wait(session, al_lock_release(lock), message) == AL_NOT_HELD && strncmp(message, "not_held: ", 10) == 0);
  al_lock_drop(lock);
  al_session_abort(session);
  al_session_drop(session);
  al_mutex_drop(mutex);
  setenv("AMQP_URL", "amqp://127.0.0.1:1", 1);
  begin("none");
  CHECK(al_op_wait(session, al_session_open(session), message) == AL_UNREACHABLE);
  CHECK(!al_acquire_wait(session, al_mutex_acquire(mutex, NULL), &code, message) && code == AL_UNREACHABLE);
  told_nothing(); /* the operations have told it */
  al_token_semaphore *tokens = al_token_semaphore_new(session, "none", NULL);
  CHECK(!al_acquire_wait(session, al_token_semaphore_acquire(tokens, NULL), &code, message) && code == AL_UNREACHABLE);
  al_token_semaphore_drop(tokens);
  al_mutex_drop(mutex);
  al_session_drop(session);
  say("all so");
}

int main(int count, char **arguments) {
  static const struct {
    const char *what;
    void (*run)(void);
  } all[] = {{"patient", patient}, {"give up", give_up}, {"descriptors", descriptors}, {"idle", idle},
             {"idle quorum", idle_quorum}, {"blocking", waits_blocking}};
  CHECK(count == 3);
  begin(arguments[2]);
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    if (strcmp(all[i].what, arguments[1]) != 0) continue;
    all[i].run();
    return 0;
  }
  return 1;
}
