/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A session: two links (link.h) to one broker, the operations under way on them (op.h), and the claims (claim.h).
 *
 * The holder is the link on which locks are held. The prober is the link that publishes, mostly to ask whether queues
 * exist. They are two, because a broker stops reading a connection that publishes (memory and disk alarms, flow
 * control), and a connection that is not read loses its locks. So the holder never publishes, and the prober never
 * holds a lock.
 *
 * Locks that are taken from quorum queues have a link of their own, `quorum`, which is opened when first needed: while
 * such a queue has no majority, the broker may end the connection of a client that consumes from it, or cancels. Sessions
 * with fenced locks have two more links (fence_links.h). */
#ifndef AL_CORE_SESSION_SESSION_H
#define AL_CORE_SESSION_SESSION_H

#include "amqplocks.h"
#include "core/wire/link.h"

typedef struct al_annex al_annex;
typedef struct al_claim al_claim;
typedef struct al_prober al_prober;
typedef struct al_fence_links al_fence_links;
struct al_transport; /* the transport's own data in a session */

#define AL_ANNEX_BUCKETS 64
#define AL_CODES 32 /* more than there are */

/* A caller that acquires and releases a retained mutex in a tight loop needs no answer. It reads the sockets so often,
 * to hear of others, and makes no system call in between. */
#define AL_READ_EVERY AL_MILLISECOND

/* What al_session_stats() tells and nothing else remembers. */
typedef struct al_counts {
  uint64_t acquired, retained, lost, revoked, contended, failed[AL_CODES];
} al_counts;

struct al_session {
  _Atomic int refs;
  al_settings settings;
  al_link holder;
  al_link quorum;                     /* the holder of locks that are taken from quorum queues */
  al_prober *asks_by;                 /* prober.h */
  al_link *prober;                    /* the link of `asks_by` */
  al_fence_links *fence_links;        /* of `asks_by` */
  al_session *next_owned, **owned_at; /* for an owner of many sessions: its list of them */
  al_op *ops;                         /* the operations that are not over */
  uint64_t ops_begun;
  uint64_t op_changes; /* how often so far an operation has ended, or begun to wait for others */
  al_claim *claims;    /* the claims that are not GONE, or are to be freed */
  al_counts counts;
  _Atomic int retained; /* claims that are kept for the next acquire, or on their way out (holder_queue.h) */
  int nests;            /* operations that begin now are parts of others */
  al_annex *annexes[AL_ANNEX_BUCKETS]; /* what the layers above keep in it; annex.h */
  uint64_t annex_uses;
  bool needs_cleanup;  /* some claims are GONE or UNDOING, or need proofs */
  int64_t cleanup_due; /* when something is due for a claim; AL_NEVER */
  uint64_t random;
  int64_t now, pumped_at;
  double wall; /* seconds since the epoch at `now` = 0 */
  bool closed;
  bool is_shared;        /* several independent callers use it: one may wait for what another holds */
  struct al_note *notes; /* a ring, made with the first note */
  unsigned notes_first;
  _Atomic unsigned notes_count;
  _Atomic uint64_t alerts; /* the number of alerts so far */
  uint64_t alerts_seen;    /* the same, as the owner last fetched it */

  struct al_transport *transport;
  void (*transport_free)(struct al_transport *);
  void (*end)(al_session *);       /* frees the session; called when `refs` has become 0 */
  void (*take_turn)(al_session *); /* see turn.h; also sets the time. NULL: there is one thread */
  void (*give_turn)(al_session *);
  int64_t (*clock)(const al_session *);   /* NULL: time stands still during a pump */
  bool (*has_forked)(const al_session *); /* NULL: never */
  void (*alarm)(al_session *,
                bool on); /* true: there are alerts; false: the owner has fetched them. Or NULL */
};

void al_session_ref(al_session *session);
void al_session_unref(al_session *session);

/* True if this process is a child of the one that made the session. The child's copy of the session may have been
 * made in the middle of a change. So nothing of it may be read or freed. */
bool al_session_forked(const al_session *session);
#define AL_FORKED_WORDS "this process is a child of the one that opened the connection; open another"

#define AL_LINKS 5
/* All links that the session uses: the holder, the prober, the fence links', and that of quorum queues. */
void al_session_links(al_session *session, al_link *links[AL_LINKS]);

/* Writes as much as can be written without waiting. */
void al_session_flush(al_session *session);

/* Sets the time of the session and of its links, during a pump (loop.h). */
void al_session_set_now(al_session *session, int64_t now);
/* The same, by the session's clock, if it has one. */
void al_session_look_at_clock(al_session *session);

/* Sets the time outside a pump, for operations that begin now. */
void al_session_set_time(al_session *session, int64_t now, double wall_now);

/* Adds a note for people. It is kept until al_session_news() fetches it. When sixteen are kept, the oldest is
 * dropped. The notes of a session are numbered from 1; `notes_first + notes_count` is the number of the latest. `code` AL_OK: it is no failure. `name`: of the lock that it is about; "": none. */
void al_session_note(al_session *session, bool is_warning, al_code code, const char *name, const char *format,
                     ...) __attribute__((format(printf, 5, 6)));
/* Removes a note that is still kept, by its number: an operation tells the same. */
void al_session_unnote(al_session *session, unsigned number);
void al_session_note_change(al_session *session, al_link *link, al_link_change change);

/* True if there are no notes, and no alerts beyond the first `alerts`, which the caller has handled. Takes no turn: a note
 * that another thread adds at this moment may not count yet. */
bool al_session_is_quiet(const al_session *session, uint64_t alerts);

/* A lock was lost, or an administrator asked for it back. Its owner may be busy elsewhere, so a thread that waits for
 * the session's alarm is woken. Call with the turn held. After the owner has closed the session nothing is
 * notified. */
void al_session_alert(al_session *session);

/* Microseconds since the epoch, by this machine's wall clock. */
int64_t al_session_microseconds(const al_session *session);

/* Makes a new ticket: 16 lower-case hexadecimal digits at random. */
void al_session_ticket(al_session *session, char out[AL_TICKET_SIZE]);

#endif
