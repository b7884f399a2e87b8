/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Acquiring what an exclusive queue holds: a slot of a semaphore, a mutex, a read or a write lock. This is what they
 * have in common: searching, claiming, losing races, waiting in line. Their kinds (al_acquire_kind) know how to
 * search, and what to claim.
 *
 *   search ──> searching ──┬─ free ──> claiming ──> (the kind's own steps) ──> drawing_token ─> handing_over ─> done
 *     ^  ^  ^              │               │ the race is lost, or what was claimed is gone
 *     │  │  └─ pausing <───│───────────────┘ at most max_attempts times; then as if nothing were free
 *     │  └──── joining <───┤ the bell's first answer is awaited, as nobody could ring before
 *     └─────── waiting <───┼─ free, but left to waiters that came before, for a moment
 *                 ^  ^     └─ nothing free ──> checking_squatters ──> done: busy, contended, deadlock, …
 *                 │  └──────────────────────────────┘ it may wait
 *                 └── the prober's connection was lost during a search; the next search opens another one
 *
 * Each name is a step function of acquire.c, in the order of their first call. In any of them the caller's timeout may
 * come. The step `drawing_token` is only for fenced locks (fence_token.h). The step `joining` follows any search,
 * whatever it found, if the acquire has subscribed to a bell that waiters make and the bell has not answered.
 *
 * A caller that does not wait (`timeout` 0: try_acquire) claims at once what is free, unless it is fair. Where a waiter
 * would begin to wait it fails: with the code of the link if the prober was lost, with `contended` after max_attempts
 * lost races, otherwise with `busy` or `unavailable`. (Of mutexes that may be retained it asks again first.) A waiter's count of lost races begins anew after each wait
 * (race.h).
 *
 * What the session retains (holder_queue.h) is taken in place of a search.
 *
 * A first search may find a free slot before the bell has answered. A token that lay ready then comes a moment later,
 * and the acquire claims the slot that it has found. It does not search once more.
 *
 * An acquire stands in line at the doorbell (line.h has when): the queue whose messages, the tokens, wake waiters. To
 * ring is to publish a token. With a token an acquire claims what it finds. Without one it leaves what is free to the
 * waiters before it, whose token may be on its way, for a moment (pacing.h). A fair acquire rings for these waiters
 * instead of claiming. Waiting ends with a token, or with the acquire's own recheck, whichever comes first. After a
 * token that leads to nothing, searches follow in quick succession, as what it stands for may come free a little
 * later. In the end that token is thrown away as one too many. */
#ifndef AL_CORE_ACQUIRE_ACQUIRE_H
#define AL_CORE_ACQUIRE_ACQUIRE_H

#include "core/acquire/fence_token.h"
#include "core/acquire/line.h"
#include "core/acquire/pacing.h"
#include "core/acquire/race.h"
#include "core/acquire/resource.h"
#include "core/acquire/squatter.h"
#include "core/hold/holder_queue.h"
#include "core/session/op.h"
#include "core/session/probe.h"

typedef enum al_search_state {
  AL_SEARCH_PENDING, /* or the operation has failed */
  AL_SEARCH_FREE,
  AL_SEARCH_NONE, /* everything is held, or refuses */
  AL_SEARCH_LOST  /* the prober's connection was lost on the way */
} al_search_state;

/* What a search has shown. */
typedef struct al_search_result {
  al_search_state state;
  int slot;                                      /* free, to be claimed; 0 */
  int found, busy, mine, unavailable;            /* so far; the search ends with the first free slot */
  int suspects[AL_SUSPECTS_MOST], suspect_count; /* the lowest slots that others hold, or seem to */
} al_search_result;

typedef struct al_acquire al_acquire;

#define AL_ACQUIRE_WORDS (AL_MESSAGE_SIZE - 160) /* room behind them for `standing` */

typedef struct al_acquire_kind {
  /* Begins a search; the links needed to ask are open. `poll` is then called from every step until it returns another
   * state than PENDING; it fills in the view. `cancel` gives up what is being asked. */
  void (*search)(al_acquire *);
  /* The queue that is claimed, if this session may have retained it (holder_queue.h). NULL: it never does. */
  const char *(*retained)(const al_acquire *);
  al_search_state (*poll)(al_acquire *);
  void (*cancel)(al_acquire *);
  void (*free)(al_acquire *);
  al_exclusive *(*claim)(al_acquire *); /* claims what the search found free */
  /* True if this connection has not claimed meanwhile what the search found free. NULL: a claim of this kind follows
   * its search at once. */
  bool (*may_claim)(const al_acquire *);
  /* called with the claim HELD, instead of al_acquire_hand_over(); NULL */
  void (*claimed)(al_acquire *);
  void (*missed)(al_acquire *); /* another has got what we claimed, or it is gone; NULL */
  al_lock_kind lock;
  al_line_kind line;

  /* the name of a queue that may be a squatter (squatter.h); its context is the al_acquire */
  al_probe_name *suspect;
  void (*standing)(const al_op *, char out[AL_MESSAGE_SIZE]); /* how things stand */
  /* why there is no lock */
  void (*failure_text)(const al_acquire *, al_code code, char out[AL_ACQUIRE_WORDS]);
} al_acquire_kind;

typedef enum al_acquire_course {
  AL_COURSE_FIRST, /* the first search, and its claim */
  AL_COURSE_EARLY, /* it found the lock free before the bell had answered */
  AL_COURSE_LATER  /* it is over */
} al_acquire_course;

struct al_acquire {
  al_op op;
  const al_acquire_kind *kind;
  al_resource *resource;
  al_acquire_options options;
  al_acquire_course course;
  al_backoff reconnects; /* between searches that lost the prober */
  al_race race;
  al_line line;
  al_pacing pacing;

  al_search_result view, last; /* of the search under way; of the last complete one */
  al_exclusive *own;           /* the claim; NULL */
  int asked_again;             /* by a caller that does not wait: of a mutex that may be retained */
  bool was_retained;           /* it was retained, and held another lock before */
  bool has_read;               /* the sockets, for this acquire */
  al_fence_token fence_token;
  int64_t fence; /* the lock's fencing token; 0: it has none, or none yet */
  al_squatter squatter;
  al_code verdict; /* the code to fail with, unless squatters explain why nothing is free */
};

/* ---- for the kinds ---------------------------------------------------------------------------------------------- */

/* Begins an operation of `size` bytes, which start with an al_acquire. NULL: no memory. */
al_op *al_acquire_begin(al_resource *resource, const al_acquire_kind *kind, size_t size,
                        const al_acquire_options *options);

/* The claim is all that the kind needs. The operation ends with a lock as soon as the claim is certain. If the claim
 * is gone instead, it goes on like al_acquire_missed(). */
void al_acquire_hand_over(al_acquire *self);

/* The claim is not HELD any more: searches again, or ends the operation. */
void al_acquire_missed(al_acquire *self);

/* Describes what the last search has seen free: `subject` is "it", "a slot" or "the write lock". Whether others came
 * first, only the broker knows. */
void al_acquire_describe_free(const al_acquire *self, const char *subject, char out[AL_MESSAGE_SIZE]);

/* Begins to wait for others to leave, with the claim in hand. False: it does not wait, and the operation has failed
 * with AL_BUSY. */
bool al_acquire_may_wait(al_acquire *self);

#endif
