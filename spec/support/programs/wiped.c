/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Checks whether creating a session leaves a password on the stack: wiped native|loop. The session is created in a
 * thread, and the thread's stack is searched afterwards. It is built with the objects of the library, since some of
 * these functions are not exported. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "amqplocks.h"
#include "transport/loop.h"

#define CHECK(what) ((what) ? (void)0 : (fprintf(stderr, "line %d: " #what "\n", __LINE__), _exit(1)))

#define STACK_SIZE (1024 * 1024)
#define PASSWORD "a password that nobody else has"

static al_settings settings;
static al_session *session;

static void *make_native(void *unused) {
  session = al_native_new(&settings);
  return unused;
}

static void *make_loop(void *unused) {
  session = al_loop_new(&settings);
  return unused;
}

int main(int argc, char **argv) {
  pthread_t thread;
  pthread_attr_t attributes;
  CHECK(argc == 2);
  void *stack = mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(stack != MAP_FAILED);
  pthread_attr_init(&attributes);
  CHECK(pthread_attr_setstack(&attributes, stack, STACK_SIZE) == 0);
  al_settings_init(&settings);
  snprintf(settings.password, sizeof settings.password, PASSWORD);
  void *(*make)(void *) = strcmp(argv[1], "loop") == 0 ? make_loop : make_native;
  CHECK(pthread_create(&thread, &attributes, make, NULL) == 0 && pthread_join(thread, NULL) == 0);
  CHECK(session);
  puts(memmem(stack, STACK_SIZE, PASSWORD, strlen(PASSWORD)) ? "a copy is left" : "none is left");
  al_session_drop(session);
  return 0;
}
