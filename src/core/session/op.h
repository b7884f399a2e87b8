/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * An operation is a small state machine with a deadline. Its state is the function `step`: the next state is the next
 * function.
 *
 *   al_op_start ─> step ─> step ─> … ─┬─ al_op_finish ───────────> done, over
 *                                     └─ al_op_fail ─> done ──────> over
 *                                                       └─ returning ─^
 *
 * A step is not told what has happened. It is called whenever something has changed that the operation may wait for:
 * a reply, a probe, a claim, a link, the time. It then checks whether the operation can go on. So a call too many
 * does no harm, and no change can be missed.
 *
 * `stop` cancels what is under way. It is called once, when the operation fails, times out or is dropped. Claims
 * (claim.h) outlive the operation that made them: they belong to the session until nothing of them is left at the
 * broker.
 *
 * An operation is done when it has its result. No step is called any more. It is over when its caller may know: a
 * failed one that has taken something is over when the broker has that back (al_claim_undo), as another client may try
 * at once. It waits for that as for any answer, but no longer than a second after its deadline, or after a silence of
 * the broker.
 *
 * Parts of operations (src/core/queue and others) have functions of one pattern, with one contract:
 *   al_X_begin()    begins the part. It sends, and may fail the operation. The links must be open.
 *   al_X_poll()     returns true if the part is done. Call it from every step until it returns true, or until it
 *                   returns what its header names. It may send. It returns false while the part is under way, and
 *                   also when it has failed the operation. A step need not tell these apart: on false it returns, and
 *                   no step of a failed operation is called again. Where code does have to know, op->done tells.
 *   al_X_cancel()   gives up what is under way. It may be called at any time, also before al_X_begin().
 *   al_X_free()     frees memory. It may be called at any time, also before al_X_begin(). */
#ifndef AL_CORE_SESSION_OP_H
#define AL_CORE_SESSION_OP_H

#include <inttypes.h>
#include <string.h>

#include "amqplocks.h"
#include "core/session/session.h"
#include "core/wire/link.h"

struct al_op {
  al_session *session;
  al_op *next; /* in the session's list, while not done */
  void (*step)(al_op *);
  void (*stop)(al_op *); /* NULL: there is nothing to cancel */
  void (*free)(al_op *); /* NULL: no memory besides the operation itself */

  al_claim *claim;     /* the step is called when this claim changes; NULL */
  int awaited;         /* the operation waits until claim->confirmed has reached this (al_claim_confirm) */
  bool watches_claims; /* the step is called when any claim of the session changes */
  void *part;          /* a part that took over the steps */
  al_op *inner;        /* the operation that does its work at present, as in hold/retry.h; NULL */
  al_op *outer;        /* the operation whose `inner` this is; its step is called when this one ends; NULL */
  bool is_final;       /* it may begin although the session is closed */
  bool is_acquire;     /* its end is counted (al_session_stats) */
  bool is_inner;       /* it is a part of another operation: its end is not counted */
  int64_t at_most;     /* of an acquire: for how long its locks may be held; 0: without a limit */

  int64_t deadline;    /* the caller's; AL_NEVER */
  int64_t reply_by;    /* when the exchange under way must be answered; AL_NEVER if there is none */
  int64_t wake;        /* when the step is to be called next; AL_NEVER */
  int64_t waits_since; /* since when it waits for another holder to release; AL_NEVER if it does not wait */

  uint64_t number;   /* of this operation in its session, from 1 */
  int returning;     /* claims that it has given back, and that are not GONE yet */
  bool done;         /* it has its result */
  _Atomic bool over; /* the members below are set before, and read by the caller after */
  al_code code;
  char message[AL_MESSAGE_SIZE];
  unsigned told; /* the number of the note that tells the same failure (session.h); 0: none */
  void (*timeout_text)(al_op *, char out[AL_MESSAGE_SIZE]);   /* message for a timeout; NULL: a general one */
  void (*standing)(const al_op *, char out[AL_MESSAGE_SIZE]); /* what it waits for; set if it ever waits */

  /* results */
  al_lock *lock; /* until al_op_lock() fetches it; the kind's `free` drops it, by al_locks_drop() */
  al_lock *
      *locks; /* of an operation that acquires several, in place of `lock`; freed with the operation; NULL */
  size_t locks_count, locks_given; /* how many there are, and how many of these al_op_lock() has returned */
  size_t count, seen;
  size_t ready;   /* number of free permits, of `count` */
  al_slot *slots; /* freed with the operation */
};

/* Allocates an operation of `size` bytes, which begin with an al_op. The caller then sets its members and calls
 * al_op_start(). `name`: of the lock, for the trace; "": none. Returns NULL if there is no memory. */
al_op *al_op_new(al_session *session, size_t size, const char *name);

/* A decision, as a line of the trace. */
#define AL_OP_TRACE(op, format, ...)                                                                         \
  AL_TRACE((op)->session->holder.trace, "op %" PRIu64 " " format, (op)->number, __VA_ARGS__)

/* Steps are given as names of functions: macros pass these on to the trace. */
#define AL_STEP(step) (step), "/" __FILE__ ":" #step

/* Adds the operation to the session's list and takes the first step, or fails the operation at once if the session
 * was closed or this process is a child. Returns `op`. */
al_op *al_op_start_at(al_op *op, int64_t deadline, void (*step)(al_op *), const char *name);
#define al_op_start(op, step, deadline) al_op_start_at(op, deadline, AL_STEP(step))

/* Goes to another state. */
static inline void al_op_enter_at(al_op *op, void (*step)(al_op *), const char *name) {
  op->step = step;
  AL_OP_TRACE(op, "%s", strrchr(name, '/') + 1);
}
#define al_op_enter(op, step) al_op_enter_at(op, AL_STEP(step))

/* Calls the step. An operation that is done takes none. */
void al_op_step(al_op *op);

/* Goes to another state, and calls its step at once: what it waits for may have happened already. */
void al_op_next_at(al_op *op, void (*step)(al_op *), const char *name);
#define al_op_next(op, step) al_op_next_at(op, AL_STEP(step))

/* True in a step that was called because the time set in `wake` has come. */
bool al_op_is_woken(const al_op *op);

/* Sets the claim whose changes call the step, in place of the one before. NULL: no claim. */
void al_op_watch(al_op *op, al_claim *claim);

/* An exchange with the broker begins. The session's timeout, from now, applies until al_op_answered(). */
void al_op_ask(al_op *op);
void al_op_answered(al_op *op);

/* An operation that does its work by this one, if any, is to look at how it stands: its step is called a moment later. */
void al_op_nudge(const al_op *op);

/* The operation waits for another holder to release, from now on, if it does not wait already. */
void al_op_waits(al_op *op);

/* Fails an operation that does the work of `op`; NULL is fine. It is no part of `op` any more, but what it has taken is
 * for `op` to give back. */
void al_op_abandon(al_op *op, al_op *inner);

/* The operation, or the one whose part it is, has given back one more claim; the same operation, by its number, need
 * not wait for one of them any more. */
uint64_t al_op_owe(al_op *op);
void al_op_paid(al_session *session, uint64_t number);

/* Gives `op` the locks that `inner` has acquired. */
void al_op_take_locks(al_op *op, al_op *inner);

void al_op_finish(al_op *op);
/* The message without its code. */
const char *al_op_words(const al_op *op);
void al_op_fail(al_op *op, al_code code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Returns true if the link is open. Otherwise requests a connection; if the link went down, fails the operation. */
bool al_op_needs(al_op *op, al_link *link);
/* For an operation under way, whose links must stay open. Returns false if the link is not open: the operation has
 * failed. */
bool al_op_has(al_op *op, const al_link *link);
/* True if the prober is lost and the holder is open. No lock is lost then, as the prober holds none. */
bool al_op_lost_prober(const al_op *op);
/* Fails the operation with the code and the reason with which the link went down. */
void al_op_fail_link(al_op *op, const al_link *link);
/* al_channel_take() has failed on the link. Fails the operation with NO_MEMORY, or with LIMIT and this text. */
void al_op_fail_channel(al_op *op, const al_link *link, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Ends a connection in the middle of a step of this operation. All other operations are stepped by that. */
void al_op_abort_link(al_op *op, al_link *link, al_code code, const char *why);

/* For the session: runs the step of every operation that is not done. */
void al_ops_step(al_session *session);

/* For the session: fails the operation if its time is over, or calls its step if it is time for that. */
void al_op_tick(al_op *op, int64_t now);
/* When to call al_op_tick() next; AL_NEVER. */
int64_t al_op_wake(const al_op *op);

#endif
