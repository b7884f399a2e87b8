/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A session: two links to one broker, the operations under way on them, and the claims that live on the holder.
 *
 * Publishing is what makes a broker stop reading a connection (memory and disk alarms, flow control), and a connection
 * that is not read loses its locks. So the holder never publishes, and the prober never holds. */
#ifndef AL_CORE_SESSION_SESSION_H
#define AL_CORE_SESSION_SESSION_H

#include "amqplocks.h"
#include "core/hold/bolt.h"
#include "core/hold/origin.h"
#include "core/session/claim.h"
#include "core/session/probe.h"
#include "core/wire/link.h"
#include "core/wire/nodes.h"

struct al_transport; /* the outside's own part of a session */

struct al_session {
  _Atomic int refs;
  al_settings settings;
  al_link holder;
  al_prober *prober;                  /* its own, or another session's */
  al_session *next_user;              /* of the same prober */
  al_session *next_owned, **owned_at; /* for an owner of many: its list */
  al_op *ops;                         /* not done */
  uint64_t op_changes;                /* how often so far one has ended, or begun to wait for others */
  al_claim *claims;                   /* not gone, or to be freed */
  char left
      [AL_NAME_SIZE]; /* the last queue of its own that went, since somebody has last asked for squatters */
  al_denied_bolts denied_bolts;
  al_origin *origins;  /* of the queues it takes quorum permits from, the latest first; NULL */
  bool has_leavings;   /* some claims are gone, or are being undone */
  int64_t leavings_at; /* when something of those has to be tried again; AL_NEVER */
  uint64_t random;
  int64_t now;
  double wall; /* seconds since the epoch at `now` = 0 */
  bool closed;
  bool is_shared;        /* by callers who know nothing of each other: one may wait for what another holds */
  struct al_note *notes; /* a ring, made with the first note */
  unsigned notes_first, notes_count;
  uint64_t alerts, alerts_seen; /* so far; when the owner last asked */

  struct al_transport *transport;
  void (*transport_free)(struct al_transport *);
  void (*take_turn)(
      al_session *); /* also tells the time; NULL: there is one thread, and time is told otherwise */
  void (*give_turn)(al_session *);
  int64_t (*clock)(const al_session *);   /* NULL: no time passes while it pumps */
  bool (*has_forked)(const al_session *); /* NULL: never */
  void (*alarm)(al_session *, bool on);   /* there are alerts, or they were looked at; NULL: nobody waits */
};

/* `seed` feeds every choice by chance. `lender`: whose prober it asks by, which must be a session to the same broker, in the
 * same thread; NULL: it has one of its own. NULL: no memory. */
al_session *al_session_new(const al_settings *settings, uint64_t seed, al_session *lender);

/* Before anything is opened: these nodes of one cluster instead of the one it was made with, which is among them. The prober
 * of another session stays as it is. False: no memory. */
bool al_session_list_nodes(al_session *session, const al_settings *settings, size_t count, bool is_shuffled);

void al_session_ref(al_session *session);
void al_session_unref(al_session *session);

/* This process is a child of the one that made the session. What it has of it may have been copied in the middle of a
 * change: nothing of it is looked at or freed, only its descriptors are closed. */
bool al_session_forked(const al_session *session);
#define AL_FORKED_WORDS "this process is a child of the one that opened the connection; open another"

/* See al_link_excuse. */
void al_session_excuse(al_session *session, int64_t pumped_at);

/* Reads both links, moves every operation along, writes. `now` is when it begins. */
void al_session_pump(al_session *session, int64_t now);
int64_t al_session_wake(const al_session *session);

/* Writes what the broker takes now. */
void al_session_flush(al_session *session);

/* The earliest deadline a caller has given; AL_NEVER. */
int64_t al_session_deadline(const al_session *session);

/* Its operations look whether they can go on. */
void al_session_step(al_session *session);

/* What the time is, outside pumping: for operations begun now. */
void al_session_set_time(al_session *session, int64_t now, double wall_now);

void al_session_list(al_session *session, al_op *op);
void al_session_unlist(al_session *session, al_op *op);

/* News for people, kept until al_session_news() fetches them; the oldest are forgotten when nobody does. */
void al_session_note(al_session *session, bool is_warning, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void al_session_note_change(al_session *session, const al_link *link, al_link_change change);

/* Something became of a lock that its owner, who may be looking elsewhere, wants to know: wakes whoever waits for the
 * session's alarm. With the turn held. What the owner does by closing is no news to it. */
void al_session_alert(al_session *session);

/* A fresh ticket: 16 lower-case hexadecimal digits. */
void al_session_ticket(al_session *session, char out[AL_TICKET_SIZE]);

#endif
