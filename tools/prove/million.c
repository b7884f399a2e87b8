/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A million operations, with a check that the heap does not grow: the core over bytes, against the broker of the
 * fuzzing targets (tools/fuzz/peer.h), which answers truthfully and at once. Locks of every kind are acquired,
 * verified, downgraded, found busy, waited for in vain, and released. Slots and permits are added and removed. After
 * some ninety of such operations the session is closed and another one is opened.
 *
 *     million [OPERATIONS [HOW]]      HOW leak: does not free one operation of each session, as a check
 *
 * Every session does the same, so the allocated memory between two sessions must be equal, to the byte. The resident
 * memory of the process may vary within a limit. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/session/loop.h"
#include "core/session/session.h"
#include "core/wire/connection.h"
#include "peer.h"
#include "transport/bytes.h"

#define PER_SESSION 80
#define SAMPLES 100
#define GROWTH_MOST (1024 * 1024) /* of resident memory, in total */

/* ---- allocated memory ------------------------------------------------------------------------------------------- */

/* glibc's own count includes its caches for each thread. These functions count for the whole process, including
 * rabbitmq-c. */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *block, size_t size);
extern void __libc_free(void *block);

static long allocated;

static void *counted(void *block) {
  if (block) allocated += (long)malloc_usable_size(block);
  return block;
}

void *malloc(size_t size) { return counted(__libc_malloc(size)); }
void *calloc(size_t count, size_t size) { return counted(__libc_calloc(count, size)); }

void free(void *block) {
  if (block) allocated -= (long)malloc_usable_size(block);
  __libc_free(block);
}

void *realloc(void *block, size_t size) {
  long before = block ? (long)malloc_usable_size(block) : 0;
  void *moved = __libc_realloc(block, size);
  if (moved || size == 0) allocated -= before;
  return counted(moved);
}

/* ---- a session, and its broker ---------------------------------------------------------------------------------- */

static peer broker = {.is_truthful = true, .channel_max = 2047, .frame_max = 8192};
static al_session *session;
static int64_t now = AL_SECOND;
static long begun;

static al_link *link_of(int index) { return index == 0 ? &session->holder : session->prober; }

static void connect(int index) {
  al_link *link = link_of(index);
  if (link->port || !al_link_is_due(link)) return;
  peer_disconnect(&broker, index);
  peer_connect(&broker, index);
  al_connection_attach(link, al_bytes_port(), now, now + AL_SECOND);
}

/* Passes bytes between the two sides. False: there were none. */
static bool carry(int index) {
  al_link *link = link_of(index);
  wire_buffer *out = &broker.connections[index].out;
  al_port *port = link->port ? link->port : link->parted;
  size_t length = 0;
  const void *bytes = port ? al_bytes_output(port, &length) : NULL;
  if (length > 0) {
    peer_hear(&broker, index, bytes, length);
    al_bytes_sent(port, length);
  }
  while (peer_answer(&broker, index, 0, PEER_TRUTH, 0)) {
  }
  bool has_said = out->length > 0 && link->port;
  if (has_said) {
    al_bytes_feed(link->port, out->bytes, out->length);
    out->length = 0;
  }
  if (!link->port) peer_disconnect(&broker, index);
  return has_said || length > 0;
}

static void turn(void) {
  for (bool moves = true; moves;) {
    moves = false;
    for (int i = 0; i < 2; i++) connect(i);
    al_session_set_time(session, now, 1e9);
    al_session_pump(session, now);
    for (int i = 0; i < 2; i++) moves = carry(i) || moves;
  }
}

static bool await(al_op *op) {
  begun++;
  turn();
  while (!al_op_done(op)) {
    int64_t wake = al_session_wake(session);
    now = wake > now ? wake : now + 1;
    turn();
  }
  return al_op_code(op) == AL_OK;
}

static void end(al_op *op) {
  await(op);
  al_op_drop(op);
}

/* The lock, or NULL if none was acquired. */
static al_lock *lock_of(al_op *op) {
  al_lock *lock = await(op) ? al_op_lock(op) : NULL;
  al_op_drop(op);
  return lock;
}

static void must(bool is_so, const char *what) {
  if (is_so) return;
  fprintf(stderr, "million: %s\n", what);
  exit(2);
}

static void let_go(al_lock *lock) {
  must(lock && al_lock_held(lock, now) == AL_OK, "a lock was not held");
  end(al_lock_verify(lock));
  if (al_lock_kind_of(lock) == AL_LOCK_WRITE) end(al_lock_downgrade(lock));
  end(al_lock_release(lock));
  al_lock_drop(lock);
}

typedef struct kinds {
  al_semaphore *slots;
  al_token_semaphore *permits;
  al_mutex *mutex;
  al_rwlock *rwlock;
} kinds;

static void use(const kinds *k) {
  static const al_acquire_options once = {.timeout = 0, .poll = AL_SECOND},
                                  soon = {.timeout = AL_MILLISECOND, .poll = AL_SECOND};
  al_lock *held = lock_of(al_mutex_acquire(k->mutex, NULL));
  must(!lock_of(al_mutex_acquire(k->mutex, &once)), "a mutex was had twice");
  let_go(held);
  let_go(lock_of(al_semaphore_acquire(k->slots, NULL)));
  let_go(lock_of(al_rwlock_read(k->rwlock, NULL)));
  let_go(lock_of(al_rwlock_write(k->rwlock, NULL)));
  held = lock_of(al_token_semaphore_acquire(k->permits, NULL));
  must(!lock_of(al_token_semaphore_acquire(k->permits, &soon)), "a permit was had twice");
  let_go(held);
  for (int i = 0; i < 3; i++) let_go(lock_of(al_token_semaphore_acquire(k->permits, NULL)));
}

static void administer(void) {
  end(al_admin_resize(session, "n", 3,
                      NULL)); /* add() would leave a token more in the bell each time, until a waiter comes */
  end(al_token_admin_add(session, "n", 1, NULL));
  end(al_admin_status(session, "n", NULL));
  end(al_admin_resize(session, "n", 2, NULL));
  end(al_token_admin_remove(session, "n", 1, NULL));
}

static void live_once(bool leaks) {
  al_settings settings;
  al_settings_init(&settings);
  session = al_session_new(&settings, 1);
  session->is_shared = true; /* otherwise no operation would wait for a lock of its own session */
  al_session_set_time(session, now, 1e9);
  kinds k = {al_semaphore_new(session, "n", NULL), al_token_semaphore_new(session, "n", NULL),
             al_mutex_new(session, "n", NULL), al_rwlock_new(session, "n", NULL)};
  end(al_admin_resize(session, "n", 2, NULL));
  end(al_token_admin_resize(session, "n", 1, NULL));
  for (long stop = begun + PER_SESSION; begun < stop;) use(&k);
  administer();
  if (leaks) await(al_semaphore_acquire(k.slots, NULL));
  end(al_session_close(session));
  al_rwlock_drop(k.rwlock);
  al_mutex_drop(k.mutex);
  al_token_semaphore_drop(k.permits);
  al_semaphore_drop(k.slots);
  al_session_drop(session);
  for (int i = 0; i < 2; i++) peer_disconnect(&broker, i);
}

static long resident(void) {
  long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file || fscanf(file, "%*s %ld", &pages) != 1) pages = 0;
  if (file) fclose(file);
  return pages * sysconf(_SC_PAGESIZE);
}

int main(int count, char **words) {
  long operations = count > 1 ? atol(words[1]) : 1000000, sessions = 0;
  bool leaks = count > 2 && strcmp(words[2], "leak") == 0;
  for (int i = 0; i < 20; i++) live_once(leaks); /* until everything has its final size */
  long first = allocated, most = first;
  long first_resident = resident(), most_resident = first_resident;
  begun = 0;
  for (long next = 0; begun < operations; sessions++) {
    live_once(leaks);
    if (begun < next) continue;
    next += operations / SAMPLES;
    long here = resident();
    most = allocated > most ? allocated : most;
    most_resident = here > most_resident ? here : most_resident;
  }
  long grown = most - first, grown_resident = most_resident - first_resident;
  printf("%ld operations in %ld sessions: %ld bytes more on the heap of %ld, %ld KiB more resident of %ld\n",
         begun, sessions, grown, first, grown_resident / 1024, first_resident / 1024);
  peer_free(&broker);
  return grown > 0 || grown_resident > GROWTH_MOST;
}
