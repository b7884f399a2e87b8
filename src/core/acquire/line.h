/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The line of waiters at a lock's doorbell (hold/bell.h), as one acquire sees it: whether it stands there, what it owes to the
 * waiters before it, and what the bell has told it since a search began.
 *
 * A bell that an administrator made is joined before the first search. Where waiters make the bell themselves, an acquire joins
 * only when it found nothing free, or when somebody was known to wait lately; after it has joined, it searches once more,
 * because nobody could ring for it before.
 *
 *   what the bell is        joined when                                          an acquire that finds the lock free
 *   ---------------------   --------------------------------------------------   ----------------------------------------------
 *   made by administrators  before every search                                  leaves it to waiters before it, for a moment
 *   made by waiters         before a search, if fair or if somebody waited        the same; the first in line takes it at once
 *                           lately; else when nothing was free
 *   missing, or mute        not for a minute; a recheck finds what is free        takes it
 *
 * A bell is mute that has not answered within the acquire's recheck time (the option `poll`), or the session's timeout. */
#ifndef AL_CORE_ACQUIRE_LINE_H
#define AL_CORE_ACQUIRE_LINE_H

#include "core/acquire/resource.h"
#include "core/hold/bell.h"
#include "core/hold/exclusive.h"
#include "core/session/op.h"

typedef struct al_line {
  al_op *op;
  al_resource *resource;
  int priority;
  int64_t recheck;
  bool waits, is_fair;
  bool makes_bell; /* waiters make the bell */
  bool is_shared;  /* others hold the lock beside us: an acquire leaves it to nobody, and keeps no token */

  al_bell *bell;    /* NULL: not made yet, or the claim has it */
  bool joins_first; /* before a search, at a bell that waiters make */
  bool was_out;     /* when the search under way began, we did not stand at the bell */
  bool was_joining; /* then, the bell had not answered yet */
  bool had_token;   /* then, a token was in hand */
} al_line;

void al_line_init(al_line *line, al_op *op, al_resource *resource, const al_acquire_options *options,
                  bool makes_bell, bool is_shared);

/* Makes the place in line, if there is none. False: no memory, and the operation has failed. */
bool al_line_make(al_line *line);

/* Before every search: joins where that is due, and remembers how things stood. What rings from now on is not missed. False:
 * the operation has failed. */
bool al_line_begin_search(al_line *line);

/* Nothing was free, and the acquire waits: joins a bell that waiters make, if it has not joined before this search. True: its
 * first answer must be awaited, and then searched once more. */
bool al_line_join(al_line *line);

bool al_line_is_joining(const al_line *line); /* the bell has not answered yet */
bool al_line_is_empty(const al_line *line);   /* no waiter came before us, as far as the bell tells */
bool al_line_has_token(const al_line *line);
int64_t
al_line_mute_at(const al_line *line); /* from then on a bell that has not answered counts as missing */

/* The bell went since the search began; the semaphore went with it, maybe. */
bool al_line_has_gone(const al_line *line);

/* The bell told news since the search began, so what that has seen held may be free by now: a token came, or the bell went. A
 * bell that was never there is no news. */
bool al_line_is_outdated(const al_line *line);

void al_line_waste_token(al_line *line); /* the token in hand led to nothing for too long */
bool al_line_ring(al_line *line); /* wakes the first in line, be it us. False: nobody can be rung for */

/* The bell was found missing since this was last called: remembers it for a minute, and tells people. */
void al_line_note_missing(al_line *line);

/* Leaves the line. With a claim, `own`, the place goes to that, until it is gone; `was_quick`: see al_bell_stay(). NULL: there
 * is no claim. */
void al_line_leave(al_line *line, al_exclusive *own, bool was_quick);

#endif
