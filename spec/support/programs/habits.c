/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Tests the promises that amqplocks.h makes for all of its functions: habits NAME, of a semaphore of two slots. (Those
 * about descriptors, about a program that computes and about forks are tested in Lua.) Exits with 0, or prints the
 * line of the failed check. */
#include "program.h"
#include <pthread.h>

#define THREADS 4
#define ROUNDS 5

static const char *name;

static al_lock *take(al_session *session, al_semaphore *semaphore) {
  al_lock *lock = succeed(session, al_semaphore_acquire(semaphore, NULL));
  CHECK(lock);
  return lock;
}

/* Waits until another client can acquire every slot. */
static void none_is_held(void) {
  al_session *other = connect_with(0);
  al_semaphore *semaphore = al_semaphore_new(other, name, NULL);
  al_lock *one = take(other, semaphore), *two = take(other, semaphore);
  al_lock_drop(one);
  al_lock_drop(two);
  al_semaphore_drop(semaphore);
  al_session_drop(other);
}

/* Texts that the broker's tools could not show, or that the broker would take for an invalid frame. */
static void bad_text(void) {
  char why[AL_MESSAGE_SIZE];
  al_settings settings;
  al_settings_init(&settings);
  CHECK(!al_settings_url(&settings, "amqp://a@b@c", why) && why[0]);
  CHECK(!al_settings_url(&settings, "amqp://a,b", why) && why[0]);
  CHECK(!al_native_new_list(&settings, 0));
  for (int i = 0; i < 3; i++) {
    al_settings_init(&settings);
    CHECK(al_settings_url(&settings, getenv("AMQP_URL"), why) && al_settings_check(&settings, why));
    strcpy(i == 2 ? settings.vhost : settings.name, i == 0 ? "my \377" : i == 1 ? "my\n" : "\300\200");
    CHECK(!al_settings_check(&settings, why));
    al_session *session = al_native_new(&settings);
    al_op *op = await(session, al_session_open(session));
    CHECK(al_op_code(op) == AL_PROTOCOL && strstr(al_op_message(op), why));
    al_op_drop(op);
    al_session_drop(session);
  }
}

static void nothing_to_drop(void) {
  al_op_drop(NULL);
  al_lock_drop(NULL);
  al_semaphore_drop(NULL);
  al_token_semaphore_drop(NULL);
  al_mutex_drop(NULL);
  al_rwlock_drop(NULL);
  al_session_drop(NULL);
}

static void use_and_drop(al_session *session) {
  al_semaphore *semaphore = al_semaphore_new(session, name, NULL);
  al_lock *lock = take(session, semaphore);
  al_op *done = await(session, al_lock_verify(lock)), *begun = al_lock_verify(lock);
  al_op *other = al_semaphore_acquire(semaphore, NULL);
  CHECK(al_op_code(done) == AL_OK && begun && other);
  al_session_drop(session); /* the session first, and everything else after it */
  CHECK(al_lock_held(lock, al_system_now()) == AL_LOST);
  CHECK(strcmp(al_lock_name(lock), name) == 0 && strlen(al_lock_ticket(lock)) == AL_TICKET_SIZE - 1);
  CHECK(al_op_done(begun) && al_op_code(begun) == AL_LOST);
  CHECK(al_op_done(other) && al_op_code(other) == AL_CLOSED);
  al_op *late = al_semaphore_acquire(semaphore, NULL);
  CHECK(al_op_done(late) && al_op_code(late) == AL_CLOSED &&
        strncmp(al_op_message(late), "closed: ", 8) == 0);
  al_op_drop(late);
  al_semaphore_drop(semaphore);
  al_op_drop(begun);
  al_lock_drop(lock);
  al_op_drop(other);
  al_op_drop(done);
}

/* The semaphore copies its name, and a pending operation does not need its semaphore. */
static void early_drops(al_session *session) {
  char text[AL_NAME_SIZE];
  snprintf(text, sizeof text, "%s", name);
  al_semaphore *semaphore = al_semaphore_new(session, text, NULL);
  memset(text, 'x', sizeof text - 1);
  al_op *op = al_semaphore_acquire(semaphore, NULL);
  al_semaphore_drop(semaphore);
  al_lock *lock = succeed(session, op);
  CHECK(lock && al_lock_held(lock, al_system_now()) == AL_OK);
  al_op *release = al_lock_release(lock);
  al_lock_drop(lock);
  succeed(session, release);
  op = al_semaphore_acquire(semaphore = al_semaphore_new(session, name, NULL), NULL);
  al_op_drop(await(session, op)); /* with a lock in it that nobody fetched */
  op = al_semaphore_acquire(semaphore, NULL);
  al_op_drop(op); /* not done */
  al_semaphore_drop(semaphore);
  none_is_held();
}

/* ---- threads that share a session ------------------------------------------------------------------------------- */

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static al_session *shared;
static al_semaphore *both_slots;
static int inside; /* under `turn`, like every call */

static void pass_the_turn(void) {
  pthread_mutex_unlock(&turn);
  usleep(500);
  pthread_mutex_lock(&turn);
}

/* Polls without waiting in the library: waiting inside of a call would block the other threads. */
static void await_in_turns(al_op *op) {
  CHECK(op);
  while (!al_op_done(op)) {
    al_native_touch(shared);
    pass_the_turn();
  }
  CHECK(al_op_code(op) == AL_OK || al_op_code(op) == AL_BUSY || al_op_code(op) == AL_CONTENDED ||
        al_op_code(op) == AL_DEADLOCK);
}

static void work_in_turns(int *worked) {
  al_acquire_options once;
  al_acquire_options_init(&once);
  once.timeout = 0;
  al_op *op = al_semaphore_acquire(both_slots, &once);
  await_in_turns(op);
  al_lock *lock = al_op_lock(op);
  al_op_drop(op);
  if (!lock) return;
  CHECK(++inside <= 2);
  pass_the_turn();
  CHECK(al_lock_held(lock, al_system_now()) == AL_OK);
  inside--;
  await_in_turns(op = al_lock_release(lock));
  al_op_drop(op);
  al_lock_drop(lock);
  ++*worked;
}

static void *sharer(void *unused) {
  pthread_mutex_lock(&turn);
  for (int worked = 0; worked < ROUNDS;) {
    work_in_turns(&worked);
    pass_the_turn();
  }
  pthread_mutex_unlock(&turn);
  return unused;
}

static void share(void) {
  pthread_t threads[THREADS];
  shared = connect_with(0);
  both_slots = al_semaphore_new(shared, name, NULL);
  al_lock_drop(take(shared, both_slots)); /* this connects */
  for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, sharer, NULL) == 0);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  al_semaphore_drop(both_slots);
  al_session_drop(shared);
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  name = argv[1];
  nothing_to_drop();
  bad_text();
  al_session *session = connect_with(0);
  early_drops(session);
  use_and_drop(session);
  share();
  puts("all so");
  return 0;
}
