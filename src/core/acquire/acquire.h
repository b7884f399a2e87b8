/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Acquiring whatever is held by an exclusive queue: a slot of a semaphore, a mutex, a read or a write lock. What they have
 * in common is here: looking, claiming, losing races, waiting at a doorbell. How to look, and what to claim, their kinds
 * know.
 *
 *   connecting ─> look ─> looking ─> claimed ─> (the kind's own steps) ─> handing_over ─> done, with a lock
 *                  ^ ^          │ nothing free  │ lost the race, or what was won
 *                  │ └── skew <─┼───────────────┘ at most max_attempts times, then as if nothing were free
 *                  └─ waiting <─┴─> looking_for_squatters ─> done: busy, contended, timeout, deadlock, …
 *
 * Every acquire is also a caller at the doorbell. With a token it claims what it finds; with none it gives those who waited
 * before it, and whose token may be on its way, a moment's grace; `fair`, it rings for them rather than claim. Waiting ends
 * with a token, or with the next look of its own, whichever comes first; a token that leads to nothing is followed by looks
 * in quick succession, as what it stands for may come free a little after it, and in the end is thrown away as one too many.
 *
 * A doorbell that an administrator made is called at from the first look on. Where nobody makes one but those who wait, a
 * caller that finds what it wants free takes it, unless somebody was known to wait for it lately; who does not makes the
 * bell, looks once more, as nobody could ring before, and waits. */
#ifndef AL_CORE_ACQUIRE_ACQUIRE_H
#define AL_CORE_ACQUIRE_ACQUIRE_H

#include "core/acquire/patience.h"
#include "core/acquire/resource.h"
#include "core/acquire/squatter.h"
#include "core/hold/bell.h"
#include "core/hold/exclusive.h"
#include "core/session/op.h"
#include "core/session/probe.h"

typedef enum al_search_state {
  AL_SEARCH_PENDING, /* or the operation has failed */
  AL_SEARCH_FREE,
  AL_SEARCH_NONE, /* everything is held, or refuses */
  AL_SEARCH_LOST  /* the prober's connection was lost on the way */
} al_search_state;

/* What a look has shown. */
typedef struct al_search_result {
  al_search_state state;
  int slot;                                      /* free, to be claimed; 0 */
  int found, busy, mine, unavailable;            /* so far; it ends with the first free slot */
  int suspects[AL_SUSPECTS_MOST], suspect_count; /* the lowest slots that others hold, or seem to */
} al_search_result;

typedef struct al_acquire al_acquire;

#define AL_ACQUIRE_WORDS (AL_MESSAGE_SIZE - 160) /* room for how things stand behind them */

typedef struct al_acquire_kind {
  void (*search)(al_acquire *); /* begins a look; the links needed to ask are open */
  al_search_state (*poll)(
      al_acquire *);            /* looked at in every step until it is not PENDING; fills in the view */
  void (*cancel)(al_acquire *); /* lets go of what is being asked */
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
  bool waits;            /* false: looks once */
  al_backoff reconnects; /* between looks for which the prober was lost */
  int attempts;          /* races lost since the last wait */
  bool looked_anew;      /* as the claim of one of them said; that one does not count */
  char lost_to[160];     /* the last of them, in words */

  al_bell *bell;  /* until the claim has it; NULL */
  bool bell_went; /* seen, and looked for slots since */
  bool queues_up; /* at a bell that waiters make */
  bool is_early;  /* the look under way began before it was there */
  bool had_token; /* the look under way began with a token in hand */
  al_patience patience;

  al_search_result view, last; /* of the look under way; of the last one that was brought to its end */
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

/* The claim is not HELD any more: another look, or the operation ends. */
void al_acquire_missed(al_acquire *self);

/* Words for what the last look has seen free, or open, while it waits: "it", "a slot". Whether others came first, only the
 * broker knows. */
void al_acquire_describe_free(const al_acquire *self, const char *subject, const char *state,
                              char out[AL_MESSAGE_SIZE]);

/* Waiting with the claim in hand, for others to leave. False: it does not wait, and the operation has failed with AL_BUSY. */
bool al_acquire_may_wait(al_acquire *self);

#endif
