/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * An operation is a small state machine with a deadline. Its state is the function `step`: the next state is the next
 * function. Steps look instead of listening: whenever anything an operation may wait for has moved (a reply, a probe,
 * a claim, a link, the time), its step is called and sees for itself whether it can go on. Being called once too often
 * is therefore harmless, and nothing can be missed.
 *
 *   al_op_begin ─> step ─> step ─> … ─> al_op_finish | al_op_fail ─> done
 *
 * `stop` gives back whatever is in flight; it is called once, when the operation fails, times out or is dropped.
 * Claims outlive the operation that made them: they belong to the session until nothing of them is left.
 *
 * Parts of operations have functions of one pattern, and one contract. al_X_begin() begins: it sends, may fail the operation, and
 * needs the links open. al_X_poll() tells whether the part is done: call it from every step until it returns true, or what its
 * header names; it may send, and it also returns false when the operation has failed. al_X_cancel() gives up what is under way;
 * al_X_free() frees memory. Both may be called at any time, also before al_X_begin(). */
#ifndef AL_CORE_SESSION_OP_H
#define AL_CORE_SESSION_OP_H

#include "amqplocks.h"
#include "core/session/session.h"
#include "core/wire/link.h"

struct al_op {
  al_session *session;
  al_op *next; /* in the session's list, while not done */
  void (*step)(al_op *);
  void (*stop)(al_op *); /* NULL: nothing to give back */
  void (*free)(al_op *); /* NULL: no memory besides the operation itself */

  al_claim *claim;      /* the step is called when this one moves; NULL */
  int awaited;          /* claim->confirmed is to reach it: so often was it asked for by then */
  bool watches_claims;  /* or when any of the session's does */
  void *part;           /* a part that took over the steps */
  int asks;             /* exchanges under way on the prober */
  const al_link *needs; /* what it waits for to open; NULL */
  bool is_final;        /* it may begin although the session is closed */

  int64_t deadline;    /* the caller's; AL_NEVER */
  int64_t reply_by;    /* the exchange under way must be answered by then; AL_NEVER if there is none */
  int64_t wake;        /* the step wants to be called then; AL_NEVER */
  int64_t waits_since; /* for somebody else to let go; AL_NEVER if it does not */

  _Atomic bool done; /* the rest below is settled before, and read after */
  al_code code;
  char message[AL_MESSAGE_SIZE];
  void (*timeout_text)(al_op *,
                       char out[AL_MESSAGE_SIZE]); /* words for a timeout; NULL for the general ones */
  void (*standing)(const al_op *, char out[AL_MESSAGE_SIZE]); /* what it waits for; set if it ever waits */

  /* results */
  al_lock *lock; /* until al_op_lock() fetches it; the kind's `free` drops it */
  size_t count, seen;
  size_t ready;   /* of `count` permits, so many are free */
  al_slot *slots; /* freed with the operation */
};

/* Makes an operation of `size` bytes, which begin with an al_op, and lists it; the caller then sets its state and calls
 * al_op_start(). NULL: no memory. */
al_op *al_op_new(al_session *session, size_t size);

/* Takes the first step, or fails at once if the session was closed. Returns `op`. */
al_op *al_op_start(al_op *op, void (*step)(al_op *), int64_t deadline);

void al_op_next(al_op *op,
                void (*step)(al_op *)); /* goes to a state and looks at once whether it is already passed */

/* True in a step that was called because the time has come that it had set in `wake`. */
bool al_op_is_woken(const al_op *op);

void al_op_watch(al_op *op, al_claim *claim); /* instead of another; NULL: none any more */

/* An exchange begins: it must be answered within the session's timeout. */
void al_op_ask(al_op *op);
void al_op_answered(al_op *op);

void al_op_waits(al_op *op); /* for somebody else to let go, from now on, if it does not yet */

void al_op_finish(al_op *op);
void al_op_fail(al_op *op, al_code code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* True if the link is open. If it is not it is wanted; if it went down instead, the operation fails. */
bool al_op_needs(al_op *op, al_link *link);
/* For an operation under way: the same links must still be open. False: one is not, and the operation has failed. */
bool al_op_has(al_op *op, const al_link *link);
/* The prober is lost, which holds nothing, and the holder is not. */
bool al_op_lost_prober(const al_op *op);
/* Fails the operation as the link did. */
void al_op_fail_link(al_op *op, const al_link *link);
/* There is no channel on the link: NO_MEMORY, or LIMIT with these words. */
void al_op_fail_channel(al_op *op, const al_link *link, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Whether what it waits for comes from the prober; otherwise from the holder. */
bool al_op_awaits_prober(const al_op *op);

/* For the session: runs the step of every operation that is not done. */
void al_ops_step(al_session *session);

/* For the session: looks at the time. */
void al_op_tick(al_op *op, int64_t now);
int64_t al_op_wake(const al_op *op);

#endif
