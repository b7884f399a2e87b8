/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * What the programs in C of specs share. */
#include <amqplocks.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(what) ((what) ? (void)0 : (fprintf(stderr, "line %d: " #what "\n", __LINE__), _exit(1)))

/* The function of libc that one of the program's own stands before, also for rabbitmq-c: REAL(int, close, int)(fd). */
#define REAL(result, name, ...) ((result(*)(__VA_ARGS__))real_function(#name))

static inline uintptr_t real_function(const char *name) { return (uintptr_t)dlsym(RTLD_NEXT, name); }

/* A session of $AMQP_URL, with $CA. `heartbeat`: 0 for the usual one. */
static inline al_session *connect_with(int heartbeat) {
  char why[AL_MESSAGE_SIZE];
  al_settings settings;
  al_settings_init(&settings);
  CHECK(al_settings_url(&settings, getenv("AMQP_URL"), why));
  if (getenv("CA")) snprintf(settings.ca, sizeof settings.ca, "%s", getenv("CA"));
  if (heartbeat > 0) settings.heartbeat = heartbeat;
  al_session *session = al_native_new(&settings);
  memset(&settings, 'x', sizeof settings); /* the session has its own copy */
  CHECK(session);
  return session;
}

static inline al_op *await(al_session *session, al_op *op) {
  CHECK(op);
  while (!al_op_done(op)) al_native_wait(session, op);
  return op;
}

/* Waits for an operation that must succeed, and drops it. Returns the lock, if it acquires one. */
static inline al_lock *succeed(al_session *session, al_op *op) {
  await(session, op);
  if (al_op_code(op) != AL_OK) fprintf(stderr, "%s\n", al_op_message(op));
  CHECK(al_op_code(op) == AL_OK);
  al_lock *lock = al_op_lock(op);
  CHECK(!al_op_lock(op)); /* once */
  al_op_drop(op);
  return lock;
}
