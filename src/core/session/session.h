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
#include "core/wire/link.h"

typedef struct al_claim al_claim;
typedef struct al_prober al_prober;
struct al_transport; /* the outside's own part of a session */

#define AL_NAME_BUCKETS 64

struct al_session {
  _Atomic int refs;
  al_settings settings;
  al_link holder;
  al_prober *asks_by;                 /* its own prober, or another session's; prober.h */
  al_link *prober;                    /* the connection of that one */
  al_session *next_user;              /* of the same prober */
  al_session *next_owned, **owned_at; /* for an owner of many: its list */
  al_op *ops;                         /* not done */
  uint64_t op_changes;                /* how often so far one has ended, or begun to wait for others */
  al_claim *claims;                   /* not gone, or to be freed */
  char last_released
      [AL_NAME_SIZE]; /* the last queue of its own that went, since somebody has last asked for squatters */
  struct al_name_entry *names[AL_NAME_BUCKETS]; /* what the holder holds or may hold, by queue; names.h */
  struct al_denied_bolts *denied_bolts;         /* made with the first denial; NULL; bolt.h */
  struct al_origin *origins;                    /* of the queues of its quorum permits; NULL; origin.h */
  void (*forget_origins)(al_session *);         /* set with the first of them */
  bool needs_cleanup;                           /* some claims are gone, or are being undone */
  int64_t cleanup_due;                          /* when something of those has to be tried again; AL_NEVER */
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
  void (*end)(al_session *); /* frees it, when nobody refers to it any more */
  void (*take_turn)(
      al_session *); /* also tells the time; NULL: there is one thread, and time is told otherwise */
  void (*give_turn)(al_session *);
  int64_t (*clock)(const al_session *);   /* NULL: no time passes while it pumps */
  bool (*has_forked)(const al_session *); /* NULL: never */
  void (*alarm)(al_session *, bool on);   /* there are alerts, or they were looked at; NULL: nobody waits */
};

void al_session_ref(al_session *session);
void al_session_unref(al_session *session);

/* This process is a child of the one that made the session. What it has of it may have been copied in the middle of a
 * change: nothing of it is looked at or freed, only its descriptors are closed. */
bool al_session_forked(const al_session *session);
#define AL_FORKED_WORDS "this process is a child of the one that opened the connection; open another"

/* Writes what the broker takes now. */
void al_session_flush(al_session *session);

/* The time, while it is pumped: of the session, and of both its links. */
void al_session_set_now(al_session *session, int64_t now);

/* What the time is, outside pumping: for operations begun now. */
void al_session_set_time(al_session *session, int64_t now, double wall_now);

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
