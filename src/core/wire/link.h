/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A link is one AMQP connection: where it connects to, whether a connection is wanted, what is sent, and until when
 * locks on it are certain. connection.h has the life of the connection, handshake.h its beginning, channel.h its
 * channels, and `moves` in link.c the states.
 *
 * The link never opens a connection itself. An operation wants a connection (`wanted`). When the time for it has come
 * (it is due), the transport connects and attaches a port (port.h). The link does the rest.
 *
 * When the link goes down, the owner of every channel is notified once. Nothing is carried over into the next
 * connection but the pause before it. There is no pause after a connection that had lasted (backoff.h); while
 * connections fail or are soon lost, each pause is longer than the one before.
 *
 * A link with several places to connect to (nodes.h) goes DOWN when its attempt has tried all of them. When one fails
 * before that, the link is IDLE, wanted, and due at once for the next one.
 *
 * Words used below:
 *   certain   a broker drops a client that was silent for two heartbeats, and not sooner. An answered request proves
 *             that the client was not silent when it sent the request. So until two heartbeats after the sending of
 *             the latest answered request, the broker does not take what is held on this connection because of
 *             silence (docs/specification.md, 9.1). See al_link_certain_until().
 *   pulse     a request that changes nothing, sent twice a heartbeat while locks are held (heartbeat.h)
 *   pump      one turn of reading, checking times and writing: al_connection_pump() */
#ifndef AL_CORE_WIRE_LINK_H
#define AL_CORE_WIRE_LINK_H

#include "core/base/amqp.h"
#include "core/base/backoff.h"
#include "core/base/trace.h"
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
  AL_LINK_WENT_ON, /* one node failed, the next is tried */
  AL_LINK_WENT_DOWN
} al_link_change;

typedef struct al_link al_link;
typedef struct al_channel al_channel;

struct al_link {
  const al_settings *settings; /* of the node that it is connected to, or tries next */
  const char *role;            /* such as "holder": the suffix of the connection's name */
  al_link_state state;
  bool wanted, was_open, has_last_words;
  bool has_broken; /* the broker ended it by an error of its own (541) */
  bool has_more;   /* the last pump left something unread */
  al_port *port;
  al_port *parted; /* the last connection's, while the program may still fetch its last bytes to be sent */
  int64_t now;     /* when the pump under way began, or when it last read bytes */

  uint64_t *random;
  al_backoff reconnect;
  int64_t due_at; /* when the next connection may be tried */

  al_nodes *nodes; /* NULL: there is one node, and `settings` are all that is known of it */
  al_cluster *cluster;
  size_t node;             /* index in nodes->at */
  size_t tried;            /* number of nodes that failed in the attempt under way */
  size_t tried_places;     /* the same of all their addresses, and of this node's */
  al_addresses *addresses; /* of the node, if the transport has resolved its name; only in an attempt */
  size_t address, tried_addresses;    /* index in addresses->at; how many of them failed */
  char last_address[AL_ADDRESS_SIZE]; /* the last that was tried, also in an earlier attempt */
  int64_t resolving;                  /* how much of the node's time was used for that */
  bool has_begun;                     /* there was an attempt before */
  bool is_shuffled;                   /* the nodes are not in the order given */
  bool rotates, is_addressed;         /* see al_link_is_ready */
  bool moves;                         /* it has had several nodes, at once or one after the other */
  char tried_words[AL_MESSAGE_SIZE];  /* why the places tried have failed */
  char seen_cluster[sizeof(((al_cluster *)0)->name)]; /* cluster of the broker whose handshake is under way */

  int64_t deadline;              /* of the handshake, or of closing */
  int64_t opened_at;             /* when the handshake was done */
  uint64_t opened;               /* how often so far */
  int64_t sent_at;               /* when a frame was last queued to be sent */
  int64_t heard_at;              /* when bytes last arrived */
  int64_t answered_at;           /* when the latest of the answered requests was sent */
  _Atomic int64_t certain_until; /* see al_link_certain_until */
  int hazards; /* requests that may make the broker end the connection, and with it other channels first */
  int64_t pulsed_at;
  int pulses;        /* number of locks held, each of which needs the pulse */
  al_channel *pulse; /* the pulse's own channel; NULL: it has none */
  bool blocked;      /* connection.blocked: the broker does not read what this connection publishes */
  int version;       /* of the broker, 30108 for 3.1.8; 0 if it does not tell */

  al_channel **channels; /* by number; [0] is unused */
  int channels_size, channel_max;
  bool lacks_memory; /* the last al_channel_take() failed because there was no memory */
  al_channel *idle;  /* open, with nothing unanswered: may be taken */
  int idle_count;
  int64_t overdue_at; /* when to check for channels that await a basic.cancel for too long; AL_NEVER */

  al_code code; /* why it is DOWN */
  char why[AL_MESSAGE_SIZE];
  unsigned told; /* for the watcher: the number of the note that tells this; 0: none */

  void (*changed)(void *watcher, al_link *link, al_link_change change);
  void (*tell_time)(
      void *watcher); /* sets `now` to the current time; NULL: time stands still during a pump */
  void *watcher;
  al_trace *trace; /* NULL */
};

/* `random` is the state of the owner's random numbers. `cluster` is shared with other links (nodes.h). */
void al_link_init(al_link *link, const al_settings *settings, al_cluster *cluster, const char *role,
                  uint64_t *random);

/* Requests a connection, unless the link is not IDLE or one is requested already. */
void al_link_want(al_link *link);

/* True if a connection is wanted and its pause is over: the transport may connect. */
bool al_link_is_due(const al_link *link);

/* True if the link is due and its nodes are known. If the link `rotates`, al_link_readdress() must have been called
 * for this attempt. */
bool al_link_is_ready(const al_link *link);

/* Sets the nodes to connect to from now on. The link must have no connection. `settings` are copied, except the
 * virtual host, the name and the timeout: the link keeps its own. Returns false, and changes nothing, if there is no
 * memory. */
bool al_link_readdress(al_link *link, const al_settings *settings, size_t count);

/* `rotates`: from now on al_link_readdress() must be called before each attempt. `is_addressed`: except before the
 * first. */
void al_link_rotate(al_link *link, bool rotates, bool is_addressed);

bool al_link_is_tls(const al_link *link); /* every node is connected to by TLS */

/* True if the link is ready, and the transport may call al_link_resolve() before it connects. */
bool al_link_lacks_addresses(const al_link *link);

/* Gives the link the addresses of its node, one at least. The link frees them. `spent` of the node's time was used to
 * find them. */
void al_link_resolve(al_link *link, al_addresses *addresses, int64_t spent);

/* Where to connect now: an address of the node, or its name if that was not resolved. */
const char *al_link_place(const al_link *link);

/* How long connecting to the current place may take, the handshake included. */
int64_t al_link_share(const al_link *link);
/* Among how many places like the current one the time left for this attempt is to be divided. 1: it is the last. */
size_t al_link_places_left(const al_link *link);

/* The transport broke off an attempt to connect to a place because the caller's time was over: nothing has failed. The
 * next place is tried at once. If there is none, the next attempt begins after a pause. */
void al_link_put_off(al_link *link);

/* Forgets how the last connection ended: DOWN becomes IDLE, so that another connection may be wanted. */
void al_link_forget(al_link *link);

void al_link_send(al_link *link, const amqp_frame_t *frame);
void al_link_method(al_link *link, int channel, amqp_method_number_t method, void *decoded);

/* An answer has arrived to a request that was sent at `asked_at`. */
void al_link_answered(al_link *link, int64_t asked_at);

/* Until when a lock on this link is certain to be held. A broker drops a client that was silent for two heartbeats,
 * and not sooner. `answered_at` is the last time at which this client was provably not silent. The result is two
 * heartbeats after that, less a twentieth of a heartbeat; 0 if the link went down. */
int64_t al_link_certain_until(const al_link *link);

/* True if the broker is a RabbitMQ before 4.3. When a queue of such a broker ends, it deletes the queue that is
 * registered under its name, also if that is a newer queue of another client. (By their sources, 4.1.8 and 4.2.3 and
 * later patches of 4.1 and 4.2 do not; they are treated like the others all the same.) */
bool al_link_ends_by_name(const al_link *link);

bool al_link_is_open(const al_link *link);
bool al_link_is_lost(const al_link *link); /* DOWN, and al_link_forget() was not called yet */

/* ---- for handshake.c and connection.c ---------------------------------------------------------------------------- */

void al_link_enter(al_link *link, al_link_state state);
bool al_link_has_places(const al_link *link); /* more than one: nodes, or addresses of its node */
void al_link_go_on(al_link *link);            /* with the next place */
void al_link_end_attempt(al_link *link);
void al_link_pause(al_link *link);              /* before the next attempt */
int64_t al_link_heartbeat(const al_link *link); /* in nanoseconds */

#endif
