/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A program that hosts Lua, with amqp-locks inside it: it needs no module and no Lua file at run time. It has two Lua
 * states, each on a thread and with a session of its own, which compete for the one slot of a semaphore.
 *
 *     cc -pthread -o host host.c $(pkg-config --cflags --libs amqplocks-lua5.4 lua5.4)
 *     AMQP_URL=amqp://guest:guest@localhost ./host images 20
 *
 * Each state works twenty times, and never while the other does. The exit status is 0 if that is so. */
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int luaopen_amqplocks(lua_State *L);

#define STATES 2

static const char script[] = "local name, rounds, work = ...\n"
                             "local amqplocks = require 'amqplocks'\n"
                             "local conn = assert(amqplocks.connect())\n"
                             "assert(conn:admin(name):resize(1))\n"
                             "local semaphore = conn:semaphore(name)\n"
                             "for _ = 1, rounds do\n"
                             "  assert(semaphore:with(function(lock)\n"
                             "    work()\n"
                             "    assert(lock:held())\n"
                             "  end))\n"
                             "end\n"
                             "conn:close()\n";

/* ---- work for one thread at a time ------------------------------------------------------------------------------ */

/* The broker provides mutual exclusion between the threads. The compiler does not know that, so the numbers are atomic.
 * But they order nothing, and an increment is done in two steps: two threads working at once would lose counts. */
static atomic_int inside, together, done;

static int look_at(atomic_int *number) { return atomic_load_explicit(number, memory_order_relaxed); }

static void count(atomic_int *number, int by) { atomic_fetch_add_explicit(number, by, memory_order_relaxed); }

static int work(lua_State *L) {
  (void)L;
  count(&inside, 1);
  int before = look_at(&done);
  nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  if (look_at(&inside) > 1) count(&together, 1);
  atomic_store_explicit(&done, before + 1, memory_order_relaxed);
  count(&inside, -1);
  return 0;
}

/* ---- a Lua state ------------------------------------------------------------------------------------------------ */

typedef struct state {
  pthread_t thread;
  const char *name;
  int rounds;
  bool is_fine;
} state;

/* Runs in protected mode, like all Lua code that may fail. `require "amqplocks"` then finds the linked module. */
static int run_script(lua_State *L) {
  const state *self = lua_touserdata(L, 1);
  luaL_openlibs(L);
  lua_pushcfunction(L, luaopen_amqplocks);
  lua_call(L, 0, 0);
  if (luaL_loadbuffer(L, script, sizeof script - 1, "=script") != 0) return lua_error(L);
  lua_pushstring(L, self->name);
  lua_pushinteger(L, self->rounds);
  lua_pushcfunction(L, work);
  lua_call(L, 3, 0);
  return 0;
}

static bool run_state(lua_State *L, state *self) {
  lua_pushcfunction(L, run_script);
  lua_pushlightuserdata(L, self);
  if (lua_pcall(L, 1, 0, 0) == 0) return true;
  const char *why = lua_tostring(L, -1);
  fprintf(stderr, "host: %s\n", why ? why : "an error that is not a string");
  return false;
}

static void *thread_main(void *argument) {
  state *self = argument;
  lua_State *L = luaL_newstate();
  if (!L) {
    fprintf(stderr, "host: no memory for a Lua state\n");
    return NULL;
  }
  self->is_fine = run_state(L, self);
  lua_close(L); /* releases whatever the script still holds */
  return NULL;
}

int main(int argc, char **argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: host NAME ROUNDS\n");
    return 1;
  }
  state states[STATES];
  for (int i = 0; i < STATES; i++) {
    states[i] = (state){.name = argv[1], .rounds = atoi(argv[2])};
    if (pthread_create(&states[i].thread, NULL, thread_main, &states[i]) != 0) return 1;
  }
  bool is_fine = true;
  int wanted = 0;
  for (int i = 0; i < STATES; i++) {
    pthread_join(states[i].thread, NULL);
    is_fine = is_fine && states[i].is_fine;
    wanted += states[i].rounds;
  }
  if (!is_fine) return 1;
  printf("worked %d of %d times, %d times together\n", look_at(&done), wanted, look_at(&together));
  return look_at(&done) == wanted && look_at(&together) == 0 ? 0 : 1;
}
