/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The end of a request, for nginx, which calls a C function then, at a moment when no Lua may run. It is noted in a list,
 * and whoever reads the list is woken. Made, hung up and read by lua/amqplocks/nginx/endings.lua, which declares the same
 * two structures. */
#include "lua/binding.h"

struct al_ending;

typedef struct al_endings {
  struct al_ending *first;           /* those that have happened, the last one first */
  int (*post)(void *semaphore, int); /* nginx's own */
  void *semaphore;
} al_endings;

typedef struct al_ending {
  struct al_ending *next;
  al_endings *all;
  double number; /* tells the reader which request it was */
} al_ending;

static void note_end(void *data) {
  al_ending *ending = data;
  al_endings *all = ending->all;
  ending->next = all->first;
  all->first = ending;
  all->post(all->semaphore, 1);
}

/* A function is handed over as what it points to is: POSIX, though not C, allows that. */
void al_lua_push_note_end(lua_State *L) {
  union {
    void (*function)(void *);
    void *pointer;
  } address = {.function = note_end};
  lua_pushlightuserdata(L, address.pointer);
}
