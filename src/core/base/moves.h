/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The table of a state machine as data: its moves. A machine changes its state by one function only, which asserts that
 * the move is in its table. Builds for users have no assertions (NDEBUG). */
#ifndef AL_CORE_BASE_MOVES_H
#define AL_CORE_BASE_MOVES_H

#include <assert.h>
#include <stdbool.h>

typedef struct al_move {
  int from, to;
} al_move;

#define AL_ANY (-1) /* any other state */
#define AL_MOVES_END                                                                                         \
  { -2, -2 }

static inline bool al_move_is_in(const al_move *moves, int from, int to) {
  bool is_other = from != to;
  for (; moves->to >= 0; moves++)
    if (moves->to == to && (moves->from == from || (moves->from == AL_ANY && is_other))) return true;
  return false;
}

static inline void al_move_check(const al_move *moves, int from, int to) {
  (void)moves, (void)from, (void)to;
  assert(al_move_is_in(moves, from, to));
}

#endif
