/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The end of an nginx request. nginx calls a C function then, at a moment when no Lua code may run. So the
 * function adds the request to a list, and posts a semaphore of nginx that wakes the reader of the list.
 * lua/amqplocks/nginx/endings.lua creates the structures, registers the function and reads the list. It declares
 * the same two structures. */
#include "lua/binding.h"

struct al_ending;

typedef struct al_endings {
  struct al_ending *first;           /* the requests that have ended, the latest first */
  int (*post)(void *semaphore, int); /* a function of nginx */
  void *semaphore;
} al_endings;

typedef struct al_ending {
  struct al_ending *next;
  al_endings *all;
  double number; /* identifies the request for the reader */
} al_ending;

static void note_end(void *data) {
  al_ending *ending = data;
  al_endings *all = ending->all;
  ending->next = all->first;
  all->first = ending;
  all->post(all->semaphore, 1);
}

/* Converts a function pointer to a data pointer: POSIX allows that, though C does not. */
void al_lua_push_note_end(lua_State *L) {
  union {
    void (*function)(void *);
    void *pointer;
  } address = {.function = note_end};
  lua_pushlightuserdata(L, address.pointer);
}
