/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The native transport: sessions whose links are sockets (socket.h). A link is connected when it is wanted, and the
 * waiting thread pumps it: it reads, runs operations, and writes.
 *
 * The turn is the mutex of a session (session/turn.h). The owner, which is the thread that calls this library, and the
 * keeper (keeper.h) take turns. The alarm is an eventfd that tells a foreign event loop that a lock was lost or
 * revoked. */
#include "transport/native.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/backoff.h"
#include "core/session/loop.h"
#include "core/session/op.h"
#include "core/session/session.h"
#include "core/session/turn.h"
#include "core/wire/connection.h"
#include "transport/descriptors.h"
#include "transport/fork.h"
#include "transport/keeper.h"
#include "transport/resolver.h"
#include "transport/socket.h"
#include "transport/system.h"

#define LOOK_AROUND AL_SECOND /* the longest poll, so that Lua's hooks and signals are served */

#define CONNECT_MOST (86400 * AL_SECOND) /* rabbitmq-c's clock overflows at some hundred years */
#define CONNECT_AGAIN 3 /* at most so many more attempts, if another thread forked meanwhile */

struct al_transport {
  al_fork fork;
  pthread_mutex_t turn; /* recursive */
  int turns;            /* how often the thread that holds the turn has taken it */
  al_keeper keeper;
  int alarm;            /* an eventfd, made when first asked for: there are alerts; -1: none */
  bool is_alarm_due;    /* raise it at the end of the turn, when other threads see the cause */
  uint64_t alerts_told; /* the number of alerts when a wait without an operation last returned */
};

/* ---- sessions --------------------------------------------------------------------------------------------------- */

static void raise_alarm(struct al_transport *transport) {
  uint64_t one = 1;
  transport->is_alarm_due = false;
  if (transport->alarm >= 0 && write(transport->alarm, &one, sizeof one) < 0)
    return; /* a full counter is readable as well */
}

static void silence_alarm(struct al_transport *transport) {
  uint64_t count;
  transport->is_alarm_due = false;
  if (transport->alarm >= 0 && read(transport->alarm, &count, sizeof count) < 0) return; /* it was silent */
}

static bool has_forked(const al_session *session) { return al_fork_happened(&session->transport->fork); }

/* A child has no keeper, and its copy of the mutex may be held by the parent's keeper. So a child takes no turn. */
static void take_turn(al_session *session) {
  if (has_forked(session)) return;
  session->transport->keeper.claimants++;
  pthread_mutex_lock(&session->transport->turn);
  session->transport->keeper.claimants--;
  session->transport->turns++;
  al_session_set_time(session, al_system_now(), al_system_wall());
}

static void give_turn(al_session *session) {
  if (has_forked(session)) return;
  struct al_transport *transport = session->transport;
  if (--transport->turns == 0 && transport->is_alarm_due) raise_alarm(transport);
  al_keeper *keeper = &transport->keeper;
  bool is_planned = keeper->sleeps_until != AL_NEVER && session->cleanup_due > session->now;
  bool must_wake = session->retained || is_planned;
  if (must_wake && session->cleanup_due < keeper->sleeps_until) al_keeper_poke(keeper);
  pthread_mutex_unlock(&transport->turn);
}

static void close_alarm(struct al_transport *transport) {
  al_descriptors_close(transport->alarm);
  transport->alarm = -1;
}

/* Never called in a child; see al_session_forked(). */
static void transport_free(struct al_transport *transport) {
  al_keeper_stop(&transport->keeper);
  close_alarm(transport);
  al_fork_free(&transport->fork);
  pthread_mutex_destroy(&transport->turn);
  free(transport);
}

static struct al_transport *transport_new(void) {
  struct al_transport *transport = calloc(1, sizeof *transport);
  if (!transport || !al_descriptors_init() || !al_fork_init(&transport->fork)) {
    free(transport);
    return NULL;
  }
  pthread_mutexattr_t recursive;
  pthread_mutexattr_init(&recursive);
  pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&transport->turn, &recursive);
  pthread_mutexattr_destroy(&recursive);
  transport->alarm = -1;
  return transport;
}

/* The alarm is raised at the end of the turn: a thread that it wakes may call held(), which takes no turn, before
 * that. */
static void set_alarm(al_session *session, bool is_on) {
  if (is_on)
    session->transport->is_alarm_due = true;
  else
    silence_alarm(session->transport);
}

static int64_t now(const al_session *session) {
  (void)session;
  return al_system_now();
}

al_session *al_native_new(const al_settings *settings) { return al_native_new_list(settings, 1); }

static al_session *native_new(const al_settings *settings) {
  al_session *session = al_system_session(settings);
  if (!session) return NULL;
  session->transport_free = transport_free;
  session->transport = transport_new();
  if (session->transport) {
    al_keeper_init(&session->transport->keeper, session);
    session->take_turn = take_turn;
    session->give_turn = give_turn;
    session->clock = now;
    session->has_forked = has_forked;
    session->alarm = set_alarm;
    al_session_set_time(session, al_system_now(), al_system_wall());
    return session;
  }
  session->transport_free = NULL;
  al_session_drop(session);
  return NULL;
}

al_session *al_native_new_list(const al_settings *settings, size_t count) {
  if (count == 0 || count > AL_HOSTS_MAX) return NULL;
  al_session *session = native_new(settings);
  if (!session || count == 1 || al_session_list_nodes(session, settings, count, false)) return session;
  al_session_drop(session);
  return NULL;
}

/* ---- connecting ------------------------------------------------------------------------------------------------- */

/* Returns how long connecting may take: no longer than the waiting operation has time for this place and those after
 * it. */
static int64_t allowed(al_session *session, const al_link *link) {
  AL_TURN(session);
  int64_t deadline = al_session_deadline(session);
  int64_t left =
      deadline == AL_NEVER ? AL_NEVER : (deadline - session->now) / (int64_t)al_link_places_left(link);
  if (left < AL_MILLISECOND) left = AL_MILLISECOND;
  if (left > al_link_share(link)) left = al_link_share(link);
  return left < CONNECT_MOST ? left : CONNECT_MOST;
}

static bool is_ready(al_session *session, const al_link *link) {
  AL_TURN(session);
  return al_link_is_ready(link);
}

static bool lacks_addresses(al_session *session, const al_link *link) {
  AL_TURN(session);
  return al_link_lacks_addresses(link);
}

/* The resolver blocks, so the turn is not held meanwhile. Returns false if the name has no address. */
static bool resolve(al_session *session, al_link *link) {
  al_code code;
  char why[256];
  if (!lacks_addresses(session, link)) return true;
  al_descriptors_spare_standard();
  al_addresses *addresses = al_resolve(link->settings->host, &code, why);
  AL_TURN(session);
  bool lacks = al_link_lacks_addresses(link); /* false: the keeper has closed the session meanwhile */
  if (!lacks)
    free(addresses);
  else if (addresses)
    al_link_resolve(link, addresses, 0);
  else
    al_connection_fail(link, code, why);
  return lacks && addresses;
}

/* The keeper may free the addresses while this thread connects. */
static void copy_place(al_session *session, const al_link *link, char place[AL_ADDRESS_SIZE]) {
  AL_TURN(session);
  snprintf(place, AL_ADDRESS_SIZE, "%s", al_link_place(link));
}

static al_port *connect_once(al_session *session, const al_link *link, int64_t until, al_code *code,
                             char why[256]) {
  char place[AL_ADDRESS_SIZE];
  int64_t left = until - al_system_now();
  al_descriptors_spare_standard();
  copy_place(session, link, place);
  return al_socket_connect(link->settings, place, left > AL_MILLISECOND ? left : AL_MILLISECOND,
                           &session->transport->fork, code, why);
}

/* Opens a connection of which no child has a copy, and whose descriptor is none of 0 to 2 (standard input, output and
 * error). If other threads fork or close these while this one connects, it connects again. After CONNECT_AGAIN more
 * attempts a copy in a child is accepted, so a program that forks all the time gets a connection; the numbers 0 to 2
 * are never accepted. */
static al_port *connect_alone(al_session *session, const al_link *link, int64_t until, al_code *code,
                              char why[256]) {
  for (int again = CONNECT_AGAIN; again >= 0; again--) {
    al_forks before = al_descriptors_forks();
    al_port *port = connect_once(session, link, until, code, why);
    if (!port) return NULL;
    bool is_last = again == 0 || !al_descriptors_may_be_copied(&before);
    if (is_last && al_socket_fd(port) >= AL_DESCRIPTORS_FIRST) return port;
    port->kind->close(port);
  }
  *code = AL_LIMIT;
  snprintf(why, 256, "the descriptors 0 to 2 are closed again and again, and no connection may have them");
  return NULL;
}

static al_port *connect_checked(al_session *session, const al_link *link, int64_t until, al_code *code,
                                char why[256]) {
  char wrong[AL_MESSAGE_SIZE];
  if (al_settings_check(link->settings, wrong)) return connect_alone(session, link, until, code, why);
  *code = AL_PROTOCOL;
  snprintf(why, 256, "%.255s", wrong);
  return NULL;
}

/* Connecting blocks, so the turn is not held meanwhile: another link may carry locks. No other thread attaches a
 * connection, or changes the node of a link without a connection. */
static void connect_due(al_session *session, al_link *link) {
  al_code code;
  char why[256];
  if (!resolve(session, link) || !is_ready(session, link)) return;
  int64_t begun = al_system_now(), left = allowed(session, link), share = al_link_share(link);
  al_port *port = connect_checked(session, link, begun + left, &code, why);
  AL_TURN(session);
  if (!link->wanted) { /* the keeper has closed the session meanwhile */
    if (port) port->kind->close(port);
    return;
  }
  bool was_cut_short = !port && left < share && session->now >= begun + left;
  if (port)
    al_connection_attach(link, port, session->now, al_deadline_after(begun, share));
  else if (was_cut_short) /* the operation's time is over, not the place's: others that wait try again */
    al_link_put_off(link);
  else
    al_connection_fail(link, code, why);
  al_keeper_poke(&session->transport->keeper);
}

/* ---- waiting ---------------------------------------------------------------------------------------------------- */

/* What else a wait ends with. */
typedef struct also {
  int fd;           /* -1: none */
  int64_t until;    /* AL_NEVER */
  bool is_readable; /* the result: `fd` is, or it is at its end, or not open */
} also;

static void poll_links(al_session *session, also *also, int64_t until) {
  struct pollfd all[1 + AL_LINKS] = {{.fd = also->fd, .events = POLLIN}};
  int count = al_keeper_watch(session, all + 1);
  int64_t left = until - al_system_now();
  if (left > LOOK_AROUND) left = LOOK_AROUND;
  if (left < 0) left = 0;
  struct timespec timeout = {.tv_sec = left / AL_SECOND, .tv_nsec = left % AL_SECOND};
  int events =
      ppoll(all, (nfds_t)count + 1, &timeout, NULL); /* if a signal interrupts it, the caller goes on */
  also->is_readable = events > 0 && all[0].revents != 0;
}

static void look_at(also *also) {
  struct pollfd one = {.fd = also->fd, .events = POLLIN};
  also->is_readable = also->fd >= 0 && poll(&one, 1, 0) > 0;
}

static void pump(al_session *session) {
  al_session_pump(session, al_system_now());
  session->transport->keeper.owner_seen = session->now;
}

void al_native_touch(al_session *session) {
  if (al_session_forked(session)) return;
  AL_TURN(session);
  bool is_fresh = session->now - session->pumped_at < AL_READ_EVERY;
  if (!session->retained || !is_fresh) pump(session);
}

static int due_links(al_session *session, al_link *due[AL_LINKS]) {
  AL_TURN(session);
  al_link *links[AL_LINKS];
  int due_count = 0;
  al_session_links(session, links);
  for (int i = 0; i < AL_LINKS; i++)
    if (al_link_is_due(links[i])) due[due_count++] = links[i];
  return due_count;
}

static bool is_any_due(al_session *session) { return due_links(session, (al_link *[AL_LINKS]){0}) > 0; }

bool al_native_connects(al_session *session) { return !al_session_forked(session) && is_any_due(session); }

/* In the middle of an attempt the places that failed are counted: it goes on with the nodes it has. */
static bool begins_attempt(const al_link *link) { return al_link_is_due(link) && link->tried_places == 0; }

al_code al_native_renew(al_session *session, const al_settings *settings, size_t count) {
  if (al_session_forked(session)) return AL_FORKED;
  if (count == 0 || count > AL_HOSTS_MAX) return AL_LIMIT;
  AL_TURN(session);
  if (strcmp(session->settings.vhost, settings->vhost) != 0) return AL_VHOST;
  al_link *links[AL_LINKS];
  al_session_links(session, links);
  for (int i = 0; i < AL_LINKS; i++)
    if (begins_attempt(links[i]) && !al_link_readdress(links[i], settings, count)) return AL_NO_MEMORY;
  return AL_OK;
}

static bool waits(const al_op *op) { return op && op->waits_since != AL_NEVER; }

/* True if there is news of a lock since the last such call, for a caller that waits for no operation. */
static bool has_news(al_session *session) {
  bool has = session->alerts != session->transport->alerts_told;
  session->transport->alerts_told = session->alerts;
  return has;
}

/* True if the caller should have its turn before the poll. An operation that has just begun to wait is such a case: the
 * caller may want to report that first. */
static bool is_over(al_session *session, const al_op *op, bool has_waited) {
  if (is_any_due(session)) return true;
  return op ? op->over || (!has_waited && waits(op)) : has_news(session);
}

static void wait_a_while(al_session *session, const al_op *op, also *also) {
  AL_TURN(session);
  bool has_waited = waits(op);
  pump(session); /* before the poll: rabbitmq-c and TLS keep bytes of their own */
  if (is_over(session, op, has_waited)) {
    look_at(also);
    return;
  }
  poll_links(session, also, al_earlier(al_session_wake(session), also->until));
  pump(session);
  if (!op) has_news(session); /* the call ends with it */
}

static bool somebody_waits(const al_session *session) {
  for (const al_op *op = session->ops; op; op = op->next)
    if (op->waits_since != AL_NEVER) return true;
  return false;
}

/* Starts the keeper with the first claim, or the first wait. A claim needs it for its lock, or while it is undone:
 * other waiters wait for its token. A waiting caller needs it, as it may be told that it waits, and compute. */
static void mind_keeper(al_session *session) {
  AL_TURN(session);
  al_keeper *keeper = &session->transport->keeper;
  bool is_due = session->claims || somebody_waits(session);
  if (!is_due || al_keeper_start(keeper) || keeper->has_failed) return;
  keeper->has_failed = true;
  al_session_note(session, true, AL_LIMIT, "",
                  "no thread could be started: locks last only while the program calls this library");
}

void al_native_retire(al_session *session) {
  al_session_abort(session);
  if (has_forked(session)) return;
  al_keeper_stop(&session->transport->keeper);
  close_alarm(session->transport);
}

void al_native_wait(al_session *session, al_op *op) { al_native_wait_fd(session, op, -1, AL_NEVER); }

bool al_native_wait_fd(al_session *session, al_op *op, int fd, int64_t until) {
  also also = {.fd = fd, .until = until};
  if (al_session_forked(session)) {
    if (op) al_op_fail(op, AL_FORKED, AL_FORKED_WORDS);
    look_at(&also);
    return also.is_readable;
  }
  al_link *due[AL_LINKS]; /* for one that becomes due meanwhile al_native_connects() is true first */
  int count = due_links(session, due);
  for (int i = 0; i < count; i++) connect_due(session, due[i]);
  wait_a_while(session, op, &also);
  mind_keeper(session);
  return also.is_readable;
}

void al_native_keep_in_child(al_session *session) {
  if (al_session_forked(session)) return;
  AL_TURN(session);
  al_link *links[AL_LINKS];
  al_session_links(session, links);
  for (int i = 0; i < AL_LINKS; i++)
    if (links[i]->port) al_descriptors_keep_once(al_socket_fd(links[i]->port));
}

/* ---- foreign event loops ---------------------------------------------------------------------------------------- */

int al_native_pollfd(al_session *session) {
  if (al_session_forked(session)) return -1;
  AL_TURN(session);
  struct al_transport *transport = session->transport;
  if (session->closed) return -1;
  if (transport->alarm < 0) transport->alarm = al_descriptors_eventfd(session->alerts > session->alerts_seen);
  mind_keeper(session);
  return transport->alarm;
}

int64_t al_native_timeout(al_session *session) {
  if (al_session_forked(session)) return AL_NEVER;
  AL_TURN(session);
  bool holds = session->holder.pulses > 0 || session->quorum.pulses > 0;
  if (session->transport->keeper.runs || !holds) return AL_NEVER;
  int64_t left = al_session_wake(session) - session->now;
  return left > 0 ? left : 0;
}
