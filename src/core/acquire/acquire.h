/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Acquiring what an exclusive queue holds: a slot of a semaphore, a mutex, a read or a write lock. This is what they have in
 * common: searching, claiming, losing races, waiting in line. How to search, and what to claim, their kinds know.
 *
 *   search ──> searching ──┬─ free ──> claiming ──> (the kind's own steps) ──> handing_over ──> done: a lock
 *     ^  ^  ^              │               │ the race is lost, or what was claimed is gone
 *     │  │  └─ skewing <───│───────────────┘ at most max_attempts times; then as if nothing were free
 *     │  └──── joining <───┤ the bell's first answer is awaited, as nobody could ring before
 *     └─────── waiting <───┼─ free, but left to waiters that came before, for a moment
 *                 ^        └─ nothing free ──> checking_squatters ──> done: busy, contended, timeout, deadlock, …
 *                 └─────────────────────────────────┘ it may wait
 *
 * Each name is a step function of acquire.c, in the order of their first call. Every acquire also stands in line at the doorbell
 * (line.h). With a token it claims what it finds. Without one it leaves what is free to the waiters before it, whose token may
 * be on its way, for a moment (patience.h); a fair acquire rings for them instead of claiming. Waiting ends with a token, or
 * with the acquire's own recheck, whichever comes first. A token that leads to nothing is followed by searches in quick
 * succession, as what it stands for may come free a little later; in the end it is thrown away as one too many. */
#ifndef AL_CORE_ACQUIRE_ACQUIRE_H
#define AL_CORE_ACQUIRE_ACQUIRE_H

#include "core/acquire/line.h"
#include "core/acquire/patience.h"
#include "core/acquire/resource.h"
#include "core/acquire/squatter.h"
#include "core/hold/exclusive.h"
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
  int found, busy, mine, unavailable;            /* so far; it ends with the first free slot */
  int suspects[AL_SUSPECTS_MOST], suspect_count; /* the lowest slots that others hold, or seem to */
} al_search_result;

typedef struct al_acquire al_acquire;

#define AL_ACQUIRE_WORDS (AL_MESSAGE_SIZE - 160) /* room for how things stand behind them */

typedef struct al_acquire_kind {
  /* Begins a search; the links needed to ask are open. Then `poll` is called from every step until it is not PENDING; it fills
   * in the view. `cancel` gives up what is being asked. */
  void (*search)(al_acquire *);
  al_search_state (*poll)(al_acquire *);
  void (*cancel)(al_acquire *);
  void (*free)(al_acquire *);
  al_exclusive *(*claim)(al_acquire *); /* what was seen to be free */
  void (*claimed)(al_acquire *);        /* goes on with the claim HELD; NULL: al_acquire_hand_over() */
  void (*missed)(al_acquire *);         /* what was claimed is somebody else's, or gone; NULL */
  al_lock_kind lock;
  bool makes_bell; /* those who wait make it */
  bool is_shared;  /* others have it beside us: nobody is to be left it, and the bell not to be kept */

  al_probe_name *suspect; /* which may be a squatter; its context is the al_acquire */
  void (*standing)(const al_op *, char out[AL_MESSAGE_SIZE]);                         /* how things stand */
  void (*failure_text)(const al_acquire *, al_code code, char out[AL_ACQUIRE_WORDS]); /* why it was not had */
} al_acquire_kind;

struct al_acquire {
  al_op op;
  const al_acquire_kind *kind;
  al_resource *resource;
  al_acquire_options options;
  bool waits;            /* false: searches once */
  al_backoff reconnects; /* between searches for which the prober was lost */
  int attempts;          /* races lost since the last wait */
  bool was_excused;      /* one of them was not counted, as its claim was told to search anew */
  char lost_to[160];     /* the last of them, in words */

  al_line line;
  al_patience patience;

  al_search_result view, last; /* of the search under way; of the last one that came to its end */
  al_exclusive *own;           /* the claim; NULL */
  al_squatter squatter;
  al_code verdict; /* what to fail with when squatters do not explain it */
};

/* ---- for the kinds ---------------------------------------------------------------------------------------------- */

/* An operation of `size` bytes, which begin with an al_acquire. NULL: no memory. */
al_op *al_acquire_begin(al_resource *resource, const al_acquire_kind *kind, size_t size,
                        const al_acquire_options *options);

/* The claim is all that was wanted: the operation ends with a lock as soon as that is certain, or goes on as if it had missed
 * it. */
void al_acquire_hand_over(al_acquire *self);

/* The claim is not HELD any more: another search, or the operation ends. */
void al_acquire_missed(al_acquire *self);

/* Words for what the last search has seen free, or open, while it waits: "it", "a slot". Whether others came first, only the
 * broker knows. */
void al_acquire_describe_free(const al_acquire *self, const char *subject, const char *state,
                              char out[AL_MESSAGE_SIZE]);

/* Waiting with the claim in hand, for others to leave. False: it does not wait, and the operation has failed with AL_BUSY. */
bool al_acquire_may_wait(al_acquire *self);

#endif
