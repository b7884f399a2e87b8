/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The line of waiters at a lock's doorbell (hold/bell.h: the queue whose messages, the tokens, wake waiters), as one
 * acquire sees it. It tells whether the acquire stands there, what it owes to the waiters before it, and what the
 * bell has told it since a search began. The order of waiters is the broker's: by priority, then as they joined.
 *
 * A bell that an administrator made is joined before the first search. Where waiters make the bell, an acquire joins
 * only when it found nothing free, or when somebody was known to wait lately. After it has joined, it searches once
 * more, because nobody could ring for it before.
 *
 *   what the bell is        joined when                                     an acquire that finds the lock free
 *   ----------------------  ----------------------------------------------  -----------------------------------------
 *   made by administrators  before every search                             leaves it to earlier waiters for a moment
 *   made by waiters         before a search, if fair or if somebody         the same; but the first in line takes it
 *                           waited lately; else when nothing was free       at once
 *   missing, or mute        not for a minute; a recheck finds what is free  takes it
 *
 * An administrator makes the bell before the first slot. So a bell that is missing proves nothing if it was asked for
 * before a slot was seen: a semaphore that is just being made may have it since. An acquire asks once more then, at
 * once.
 *
 * A bell is mute that has not answered within the acquire's recheck time (the option `poll`), or within the session's
 * timeout, whichever is shorter. */
#ifndef AL_CORE_ACQUIRE_LINE_H
#define AL_CORE_ACQUIRE_LINE_H

#include "core/acquire/resource.h"
#include "core/hold/bell.h"
#include "core/hold/holder_queue.h"
#include "core/session/op.h"

typedef enum al_line_kind {
  AL_LINE_KEPT, /* administrators make the bell */
  AL_LINE_MADE, /* waiters make it */
  AL_LINE_SHARED /* the same; others hold the lock beside us: an acquire leaves it to nobody, and keeps no token */
} al_line_kind;

typedef struct al_line {
  al_op *op;
  al_resource *resource;
  const al_acquire_options *options;
  al_line_kind kind;

  al_bell *bell;            /* NULL: not made yet, or the claim has it */
  bool has_asked;           /* for a bell that administrators make */
  bool joins_first;         /* joins before a search, at a bell that waiters make */
  al_consumer_state before; /* the bell's, when the search under way began */
} al_line;

/* `options` must stay where they are. */
void al_line_init(al_line *line, al_op *op, al_resource *resource, const al_acquire_options *options,
                  al_line_kind kind);

/* Makes the place in line, if there is none. False: no memory, and the operation has failed. */
bool al_line_make(al_line *line);

/* Before every search: joins if that is due, and remembers how things stood. No ring from now on is missed.
 * False: the operation has failed. */
bool al_line_begin_search(al_line *line);

/* Nothing was free, and the acquire waits: joins a bell that waiters make, if it has not joined before this search.
 * True: wait for the bell's first answer, and then search once more. */
bool al_line_join(al_line *line);

bool al_line_is_joining(const al_line *line); /* the bell has not answered yet */
bool al_line_is_empty(const al_line *line);   /* no waiter came before us, as far as the bell tells */
bool al_line_has_token(const al_line *line);
int64_t al_line_mute_at(const al_line *line); /* when a bell that has not answered counts as missing */

/* The bell went since the search began; the semaphore may have gone with it. */
bool al_line_has_gone(const al_line *line);

/* The bell told news since the search began: a token came, or the bell went. So what the search found held may be
 * free by now. A bell that was never there is no news. */
bool al_line_is_outdated(const al_line *line);

/* wakes the first in line, which may be ourselves. False: the prober cannot ring */
bool al_line_ring(al_line *line);

/* If the bell was found missing since the last call: remembers it for a minute, and writes a note. */
void al_line_note_missing(al_line *line);

/* Leaves the line. If there is a claim, `own`, the place goes to the claim until that is gone; `was_quick`: see
 * al_bell_settle(). NULL: there is no claim. */
void al_line_leave(al_line *line, al_exclusive *own, bool was_quick);

#endif
