/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A link is one AMQP connection: where it connects to, whether it is wanted, what it sends, and until when it is certain.
 * connection.h has its life, handshake.h its beginning, channel.h its channels.
 *
 *   IDLE ─ want, attach ─> GREETING ─ start ─> TUNING ─ tune ─> OPENING ─ open-ok ─> OPEN ─ close ─> CLOSING
 *     ^                        └───────────┴────────┴──────────────┴──────────┴────────────────────────> DOWN
 *     └──────────────────────────── forget (a new connection, nothing carried over) ────────────────────────┘
 *
 * The link never opens a connection itself. Someone wants it (`wanted`), the outside attaches a port as soon as that is
 * due, the link does the rest. When it goes down every channel's owner is told, once; nothing survives into the next
 * connection but the pause before it: none after a connection that had lasted, longer and longer ones while they fail or
 * die young.
 *
 * Of a link with several nodes only its attempt goes DOWN, when all of them were tried: a node that fails before that
 * leaves the link IDLE, wanted, and due at once for the next. */
#ifndef AL_CORE_WIRE_LINK_H
#define AL_CORE_WIRE_LINK_H

#include "core/base/amqp.h"
#include "core/base/backoff.h"
#include "core/wire/nodes.h"
#include "core/wire/port.h"

typedef enum al_link_state {
  AL_LINK_IDLE,
  AL_LINK_GREETING,
  AL_LINK_TUNING,
  AL_LINK_OPENING,
  AL_LINK_OPEN,
  AL_LINK_CLOSING,
  AL_LINK_DOWN
} al_link_state;

typedef enum al_link_change {
  AL_LINK_OPENED,
  AL_LINK_BLOCKED,
  AL_LINK_UNBLOCKED,
  AL_LINK_WENT_ON, /* one node failed, another is tried */
  AL_LINK_WENT_DOWN
} al_link_change;

typedef struct al_link al_link;
typedef struct al_channel al_channel;

struct al_link {
  const al_settings *settings; /* of the node it is connected to, or tries next */
  const char *role;            /* "holder" or "prober", the suffix of the connection's name */
  al_link_state state;
  bool wanted, was_open, has_last_words;
  bool has_more;  /* the last pump left something to be read */
  bool is_orphan; /* whoever carried it is gone: it is down, and stays so */
  al_port *port;
  al_port *parted; /* the last connection's, as long as its last words may still be fetched from it */
  int64_t now;     /* the time of the pump under way, or of what it has read last */

  uint64_t *random;
  al_backoff reconnect;
  int64_t due_at; /* when the next connection may be tried */

  al_nodes *nodes; /* NULL: there is one, of which nothing is known but `settings` */
  al_cluster *cluster;
  size_t node;                                        /* of nodes->at */
  size_t tried;                                       /* nodes, in the attempt under way */
  bool has_begun;                                     /* a connection was tried before */
  bool is_shuffled;                                   /* its nodes are not in the order given */
  bool rotates, is_addressed;                         /* see al_link_is_ready */
  char tried_words[AL_MESSAGE_SIZE];                  /* what was wrong with those */
  char seen_cluster[sizeof(((al_cluster *)0)->name)]; /* the one whose handshake is under way */

  int64_t deadline;              /* of the handshake, or of closing */
  int64_t opened_at;             /* when the handshake was done */
  int64_t sent_at;               /* when anything was last queued to be sent */
  int64_t heard_at;              /* when bytes last came */
  int64_t answered_at;           /* when the latest request was sent that has an answer */
  _Atomic int64_t certain_until; /* see al_link_certain_until */
  int64_t pulsed_at;
  int pulses;        /* locks that want the link's certainty kept fresh */
  al_channel *pulse; /* the channel the pulse beats on */
  bool blocked;      /* connection.blocked: the broker does not read what this connection publishes */
  int version;       /* of the broker, 30108 for 3.1.8; 0 if it does not tell */

  al_channel **channels; /* by number; [0] is unused */
  int channels_size, channel_max;
  bool lacks_memory; /* that is why the last one who wanted a channel got none */
  al_channel *idle;  /* open and clean */
  int idle_count;
  int64_t overdue_at; /* when to look for channels that wait in vain to be given back; AL_NEVER */

  al_code code; /* why it is DOWN */
  char why[AL_MESSAGE_SIZE];

  void (*changed)(void *watcher, al_link *link, al_link_change change);
  void (*tell_time)(void *watcher); /* sets `now` to what it is by now; NULL: none passes while it pumps */
  void *watcher;
};

/* `random` is the session's, `cluster` what its links have in common. */
void al_link_init(al_link *link, const al_settings *settings, al_cluster *cluster, const char *role,
                  uint64_t *random);

/* Asks the outside for a connection, unless there is one or one is under way. */
void al_link_want(al_link *link);

/* Somebody wants a connection, and it is time for it: the outside may connect. */
bool al_link_is_due(const al_link *link);

/* It is due, and where to connect is known: al_link_readdress() was called for this attempt, if the link `rotates`. */
bool al_link_is_ready(const al_link *link);

/* Where to connect from now on; the link must have no connection. `settings` are copied, but for the virtual host, the name
 * and the timeout, which are those it has. False: no memory, and nothing has changed. */
bool al_link_readdress(al_link *link, const al_settings *settings, size_t count);

/* From now on where to connect is to be told before each attempt; `is_addressed`: it is for the first. */
void al_link_rotate(al_link *link, bool rotates, bool is_addressed);

bool al_link_is_tls(const al_link *link); /* every node is to be spoken to by TLS */

/* How long connecting to this node may take, the handshake included; and how many nodes are left to this attempt, this one
 * among them. */
int64_t al_link_share(const al_link *link);
size_t al_link_nodes_left(const al_link *link);

/* An attempt to connect was broken off, by nobody's fault. The next node is tried at once; once that was the last of them,
 * the next attempt has to wait nevertheless. */
void al_link_put_off(al_link *link);

/* Forgets how the last connection ended, so that another may be wanted. */
void al_link_forget(al_link *link);

/* Sends a frame. */
void al_link_send(al_link *link, const amqp_frame_t *frame);
void al_link_method(al_link *link, int channel, amqp_method_number_t method, void *decoded);

/* There was an answer to a request sent at `asked_at`. */
void al_link_answered(al_link *link, int64_t asked_at);

/* Until when a lock on this link is certain: brokers drop a client that was silent for two heartbeats, not sooner, and
 * `answered_at` is the last moment at which it was provably not silent. */
int64_t al_link_certain_until(const al_link *link);

/* At their end the queues of this broker take away what stands under their names, be it another's by then: RabbitMQ before
 * 4.3. (From 4.1.8 and 4.2.3 on they do not, by the sources; those are counted among them all the same.) */
bool al_link_ends_by_name(const al_link *link);

bool al_link_is_open(const al_link *link);
bool al_link_is_lost(const al_link *link); /* it went down, and nobody has forgotten it yet */

/* ---- for handshake.c and connection.c ---------------------------------------------------------------------------- */

size_t al_link_nodes_count(const al_link *link);
void al_link_use_node(al_link *link, size_t node); /* counted on from the first one when there are fewer */
void al_link_end_attempt(al_link *link);
void al_link_pause(al_link *link);              /* the next attempt has to wait */
int64_t al_link_heartbeat(const al_link *link); /* in nanoseconds */

#endif
