/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The fuzzing target "session": sessions over the bytes transport, and the core behind them, against a broker that
 * tells the truth, lies, or sends garbage. The input is a program: four bytes of settings, then instructions of four
 * bytes each,
 *
 *   operation  a  b  c
 *
 * Every value is valid, so that a fuzzer may change any byte. The comment of each do_ function describes its operands.
 * With TRACE in the environment each instruction is printed when it runs. Some instructions also read the bytes behind
 * them.
 *
 * For every program, after every instruction
 *   - everything written is valid AMQP by the specification (wire.c), and by the broker's state (peer.c);
 *   - no session spins: a session that was pumped wants to be pumped again later, not now;
 *   - no operation is past its deadline, and finished operations are in no list;
 *   - no fencing token is handed out twice;
 *   - no lock reports that it is held if its channel was closed, or its consumer was cancelled;
 *   - as long as the broker has told only the truth, a lock that reports that it is held is held there.
 * At the end, of which there are four kinds, everything ends: operations end by themselves, and their claims with them.
 * Nothing is left at a truthful broker, or, as the sanitizers check, in memory. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/hold/holder_queue.h"
#include "core/hold/lock.h"
#include "core/session/claim.h"
#include "core/session/fence_links.h"
#include "core/session/loop.h"
#include "core/session/session.h"
#include "core/tokens/permit.h"
#include "core/wire/connection.h"
#include "peer.h"
#include "transport/bytes.h"

#define LATE INT64_C(2000000000000000000) /* a time of this clock, which ends at 9.2e18 */
#define SESSIONS 2
#define LINKS (SESSIONS * AL_LINKS) /* programs choose from the first of them: see link_of() */
#define LINKS_CHOSEN 6
#define LINKS_WITHOUT_QUORUM 5
#define LINKS_WITHOUT_FENCES 3
#define NAMES 3
#define OPS 12
#define LOCKS 16
#define SPINS_MOST 100
#define ANSWERS_MOST 6000 /* by a program */

typedef struct begun {
  al_op *op;
  int64_t ends_by; /* deadline by which it must have ended; AL_NEVER */
} begun;

typedef struct world {
  const uint8_t *at, *end; /* the rest of the program */
  peer broker;
  al_session *sessions[SESSIONS];
  int64_t now, heartbeat;
  al_probing probing;
  al_semaphore_options slots;
  al_semaphore *semaphores[SESSIONS][NAMES];
  al_token_semaphore *tokens[SESSIONS][NAMES];
  al_mutex *mutexes[SESSIONS][NAMES];
  al_rwlock *rwlocks[SESSIONS][NAMES];
  begun ops[OPS];
  al_lock *locks[LOCKS];
  size_t next_op, next_lock;
  int answers_left;
  unsigned links;     /* from which a program can choose: older programs have fewer */
  bool is_raw[LINKS]; /* bytes arrived that may not be frames */
  bool holds_back;    /* the broker's bytes do not arrive */
  bool refuses;       /* no connection can be opened */
  int split;          /* the sizes of the pieces in which bytes arrive */
  int closing;        /* the channel that the first holder's broker closes, which must cost its lock; 0 */
} world;

static bool traces;
#define TRACE(...) (traces ? (void)fprintf(stderr, __VA_ARGS__) : (void)0)

static char names[NAMES][AL_NAME_SIZE] = {"n", "m"};

static uint8_t byte(world *w) { return w->at < w->end ? *w->at++ : 0; }

static int64_t pick(const int64_t *values, size_t count, unsigned index) { return values[index % count]; }
#define PICK(values, index) pick(values, sizeof(values) / sizeof *(values), index)

/* ---- links ------------------------------------------------------------------------------------------------------- */

/* Holder and prober of the first session, holder of the second; fence, maker and quorum of the first; the others. */
static const struct {
  int session, link;
} places[LINKS] = {{0, 0}, {0, 1}, {1, 0}, {0, 2}, {0, 3}, {0, 4}, {1, 1}, {1, 2}, {1, 3}, {1, 4}};

static al_link *link_of(world *w, int index) {
  al_session *session = w->sessions[places[index].session];
  al_link *links[AL_LINKS];
  if (!session) return NULL;
  al_session_links(session, links);
  return links[places[index].link];
}

static int holder_index(world *w, const al_lock *lock) {
  int index = 0;
  while (index < LINKS - 1 && link_of(w, index) != lock->claim->link) index++;
  return index;
}

static bool connect(world *w, int index) {
  al_link *link = link_of(w, index);
  if (!link || link->port || !al_link_is_due(link)) return false;
  CHECK(link->changed, "a connection is wanted for a session that is gone");
  if (w->refuses) {
    al_connection_fail(link, w->now % 2 ? AL_UNREACHABLE : AL_TLS, "nobody is there");
    return true;
  }
  al_port *port = al_bytes_port();
  CHECK(port, "no memory");
  peer_disconnect(&w->broker, index);
  peer_connect(&w->broker, index);
  w->is_raw[index] = false;
  al_connection_attach(link, port, w->now, w->now + link->settings->timeout);
  return true;
}

/* The broker reads what the link wrote. If the session gave the connection up, it ends for the broker, too. */
static void collect(world *w, int index) {
  al_link *link = link_of(w, index);
  if (!link) return;
  al_port *port = link->port ? link->port : link->parted;
  size_t length = 0;
  const void *bytes = port ? al_bytes_output(port, &length) : NULL;
  if (length > 0) {
    peer_hear(&w->broker, index, bytes, length);
    al_bytes_sent(port, length);
  }
  if (!link->port) peer_disconnect(&w->broker, index);
}

static void pump_one(world *w, al_session *session) {
  if (!session) return;
  al_session_set_time(session, w->now, 1700000000 + (double)w->now / (double)AL_SECOND);
  al_session_pump(session, w->now);
}

static void pump(world *w) {
  for (int i = 0; i < SESSIONS; i++) pump_one(w, w->sessions[i]);
  for (int i = 0; i < LINKS; i++) collect(w, i);
}

static size_t piece(const world *w, size_t left) {
  size_t length = left < 2000 ? w->split == 1 ? 1 : 7 : 101;
  return w->split > 0 && length < left ? length : left;
}

/* The bytes of the broker arrive. */
static bool carry(world *w, int index) {
  peer_connection *c = &w->broker.connections[index];
  al_link *link = link_of(w, index);
  if (w->holds_back || !link || !link->port || c->out.length == 0) return false;
  wire_buffer said = c->out;
  c->out = (wire_buffer){0};
  for (size_t at = 0, length; at < said.length && link->port; at += length) {
    length = piece(w, said.length - at);
    al_bytes_feed(link->port, said.bytes + at, length);
    if (at + length < said.length) pump(w);
  }
  wire_free(&said);
  return true;
}

/* ---- invariants -------------------------------------------------------------------------------------------------- */

static int channel_of(const al_lock *lock) {
  const al_claim *claim = lock->claim;
  const al_channel *channel = lock->kind == AL_LOCK_PERMIT ? ((const al_permit *)claim)->consumer.channel
                                                           : ((const al_exclusive *)claim)->channel;
  return claim->state == AL_CLAIM_HELD && channel && !channel->was_closed ? channel->number : 0;
}

static void check_lock(world *w, al_lock *lock) {
  int index = holder_index(w, lock);
  al_code held = al_lock_held(lock, w->now);
  bool is_settled = !w->holds_back && w->broker.connections[index].out.length == 0;
  CHECK(held == AL_OK || held == AL_SUSPECT || held == AL_LOST || held == AL_NOT_HELD, "held() says %d",
        held);
  if (held == AL_LOST) CHECK(al_lock_reason(lock)[0], "a lock was lost for no reason");
  if (held != AL_OK) return;
  CHECK(link_of(w, index) && link_of(w, index)->state >= AL_LINK_OPEN, "held, and there is no connection");
  if (w->broker.is_truthful && is_settled)
    CHECK(peer_consumer_by(&w->broker, index, al_lock_ticket(lock)),
          "%s is held, and nobody consumes it there", lock->claim->queue);
}

static void check_link(world *w, int index) {
  const al_link *link = link_of(w, index);
  int idle = 0;
  if (!link) return;
  for (const al_channel *c = link->idle; c; c = c->next_idle, idle++)
    CHECK(c->state == AL_CHANNEL_OPEN && !c->on, "a channel in the pool is not clean");
  CHECK(idle == link->idle_count, "%d channels in the pool, counted %d", idle, link->idle_count);
}

static void check_session(world *w, al_session *session) {
  int held = 0;
  if (!session) return;
  for (const al_claim *c = session->claims; c; c = c->next) held += c->state == AL_CLAIM_HELD;
  int counted = session->holder.pulses + session->quorum.pulses;
  CHECK(held == counted, "%d claims held, counted %d", held, counted);
  for (const al_op *op = session->ops; op; op = op->next) {
    int owed = 0;
    for (const al_claim *c = session->claims; c; c = c->next) owed += c->owed_by == op->number;
    CHECK(!op->over, "an operation is over, and listed");
    CHECK(owed == op->returning, "an operation waits for %d claims, and %d are to go", op->returning, owed);
    CHECK(op->deadline > w->now && op->reply_by > w->now, "an operation is past its deadline");
  }
}

static void check_ops(world *w) {
  for (int i = 0; i < OPS; i++) {
    al_op *op = w->ops[i].op;
    if (!op) continue;
    CHECK(op->done || w->ops[i].ends_by > w->now, "operation %d did not end in its time", i);
    CHECK(op->over || !op->done || op->deadline <= w->now + op->session->settings.timeout,
          "operation %d waits for too long after its end", i);
    CHECK(!al_op_done(op) || (al_op_code(op) == AL_OK) == !al_op_message(op)[0], "operation %d: \"%s\"", i,
          al_op_message(op));
  }
}

static void check(world *w) {
  for (int i = 0; i < LINKS; i++) check_link(w, i);
  for (int i = 0; i < SESSIONS; i++) check_session(w, w->sessions[i]);
  check_ops(w);
  for (int i = 0; i < LOCKS; i++)
    if (w->locks[i]) check_lock(w, w->locks[i]);
}

static int64_t wake_of(const world *w) {
  int64_t wake = AL_NEVER;
  for (int i = 0; i < SESSIONS; i++) {
    int64_t one = w->sessions[i] ? al_session_wake(w->sessions[i]) : AL_NEVER;
    if (one < wake) wake = one;
  }
  return wake;
}

/* Runs until nothing can go on without the broker or without time passing. */
static void settle(world *w) {
  bool moves = true;
  for (int spins = 0; moves; spins++) {
    CHECK(spins < SPINS_MOST, "it spins");
    moves = false;
    for (int i = 0; i < LINKS; i++) moves = connect(w, i) || moves;
    for (int i = 0; i < LINKS; i++) moves = carry(w, i) || moves;
    pump(w);
    moves = moves || wake_of(w) <= w->now;
  }
  check(w);
}

/* ---- the truth --------------------------------------------------------------------------------------------------- */

/* Answers every request, until there are none. Programs that send too many requests are stopped, and leftovers are not
 * checked for them. */
static void answer_all(world *w) {
  for (bool any = true; any && w->answers_left > 0;) {
    any = false;
    for (int i = 0; i < LINKS; i++)
      for (; w->answers_left > 0 && peer_answer(&w->broker, i, 0, PEER_TRUTH, 0); w->answers_left--)
        any = true;
    settle(w);
  }
  if (w->answers_left == 0) w->broker.is_truthful = false;
}

static void beat_all(world *w) {
  static const uint8_t heartbeat[] = {8, 0, 0, 0, 0, 0, 0, 0xCE};
  for (int i = 0; i < LINKS; i++)
    if (w->broker.connections[i].is_up && link_of(w, i) && link_of(w, i)->state == AL_LINK_OPEN)
      wire_append(&w->broker.connections[i].out, heartbeat, sizeof heartbeat);
}

/* Time passes, with a turn whenever one is due, and with a broker that answers, or is silent. */
static void live(world *w, int64_t time, bool answers, int turns) {
  int64_t until = w->now + time;
  for (int i = 0; w->now < until && i < turns; i++) {
    int64_t wake = wake_of(w), beat = w->now + w->heartbeat / 2;
    if (wake == AL_NEVER) beat = until; /* there is no connection and no waiting operation */
    if (answers && beat < wake) wake = beat;
    w->now = wake < until ? wake : until;
    if (answers) beat_all(w);
    settle(w);
    if (answers) answer_all(w);
  }
}

/* ---- instructions: begin an operation ---------------------------------------------------------------------------- */
static const int64_t amounts[] = {1, 2, 3, 0, 5, 20, 600, 65535, -1, 65536, 2147483647, -2147483648LL};
static const int64_t timeouts[] = {AL_NEVER,       0, 5 * AL_SECOND, AL_MILLISECOND,
                                   60 * AL_SECOND, 1, AL_NEVER - 1};
static const int64_t polls[] = {5 * AL_SECOND, 10 * AL_MILLISECOND, AL_NEVER, AL_SECOND};
static const int64_t priorities[] = {0, 1, -1, 32767, -32768};

static const int64_t admin_times[] = {30 * AL_SECOND, AL_MILLISECOND, AL_NEVER, 5 * AL_SECOND};
static const int64_t admin_waits[] = {5 * AL_SECOND, AL_NEVER};

static al_acquire_options acquire_options(unsigned b) {
  al_acquire_options options;
  al_acquire_options_init(&options);
  options.timeout = PICK(timeouts, b & 7);
  options.fair = b >> 3 & 1;
  options.poll = PICK(polls, b >> 4 & 3);
  options.priority = (int)PICK(priorities, b >> 6);
  return options;
}

static al_admin_options admin_options(unsigned b) {
  al_admin_options options;
  al_admin_options_init(&options);
  options.quorum = b & 1;
  options.ascending = b >> 1 & 1;
  options.revoke = b >> 2 & 1;
  options.overshoot = b >> 3 & 1 ? 3 : 0;
  options.wait = b >> 4 & 1 ? PICK(admin_waits, b >> 1 & 1) : 0;
  options.timeout = PICK(admin_times, b >> 5 & 3);
  return options;
}

static al_token_admin_options token_admin_options(unsigned b) {
  al_token_admin_options options;
  al_token_admin_options_init(&options);
  options.quorum = b & 1;
  options.wait = b >> 4 & 1 ? PICK(admin_waits, b >> 3 & 1) : 0;
  options.timeout = PICK(admin_times, b >> 5 & 3);
  return options;
}

static al_token_semaphore *new_tokens(world *w, int s, int n) {
  al_token_semaphore_options options = {.quorum = n == 1, .fenced = n == 1 && s == 1 && w->slots.fenced};
  return al_token_semaphore_new(w->sessions[s], names[n], &options);
}

static al_op *acquire(world *w, int s, int n, unsigned kind, const al_acquire_options *o) {
  al_session *session = w->sessions[s];
  al_lock_options locks = {
      .max_attempts = w->slots.max_attempts, .probing = w->probing, .fenced = w->slots.fenced};
  switch (kind) {
    case 0:
      if (!w->semaphores[s][n]) w->semaphores[s][n] = al_semaphore_new(session, names[n], &w->slots);
      return al_semaphore_acquire(w->semaphores[s][n], o);
    case 1:
      if (!w->tokens[s][n]) w->tokens[s][n] = new_tokens(w, s, n);
      return al_token_semaphore_acquire(w->tokens[s][n], o);
    case 2:
      if (!w->mutexes[s][n]) w->mutexes[s][n] = al_mutex_new(session, names[n], &locks);
      return al_mutex_acquire(w->mutexes[s][n], o);
    default:
      if (!w->rwlocks[s][n]) w->rwlocks[s][n] = al_rwlock_new(session, names[n], &locks);
      return (kind == 3 ? al_rwlock_read : al_rwlock_write)(w->rwlocks[s][n], o);
  }
}

static al_op *wait_released(al_session *session, const char *name, unsigned b, const al_admin_options *o) {
  static const int slots[] = {1, 2, 3, 600, AL_SLOTS_MAX};
  return al_admin_wait_released(session, name, slots + b % 2, b % 5, o);
}

static int amount_of(unsigned b) { return (int)PICK(amounts, b % 7 + (b >> 6 == 3 ? 5 : 0)); }

static al_op *administer(al_session *s, const char *name, unsigned kind, unsigned b) {
  al_admin_options o = admin_options(b);
  int amount = amount_of(b);
  switch (kind) {
    case 0:
      return al_admin_create(s, name, amount, &o);
    case 1:
      return al_admin_add(s, name, amount, &o);
    case 2:
      return al_admin_remove(s, name, amount, &o);
    case 3:
      return al_admin_resize(s, name, amount, &o);
    case 4:
      return al_admin_destroy(s, name, &o);
    case 5:
      return al_admin_repair(s, name, &o);
    case 6:
      return al_admin_slots(s, name, b & 1 ? NULL : &o);
    case 7:
      return al_admin_status(s, name, &o);
    case 8:
      return wait_released(s, name, b, &o);
    default:
      return al_admin_revoke(s, name, amount > 0 && amount <= AL_SLOTS_MAX ? amount : 1, &o);
  }
}

static al_op *administer_tokens(al_session *s, const char *name, unsigned kind, unsigned b) {
  al_token_admin_options o = token_admin_options(b);
  int amount = amount_of(b);
  switch (kind) {
    case 0:
      return al_token_admin_create(s, name, amount, &o);
    case 1:
      return al_token_admin_add(s, name, amount, &o);
    case 2:
      return al_token_admin_remove(s, name, amount, &o);
    case 3:
      return al_token_admin_resize(s, name, amount, &o);
    case 4:
      return al_token_admin_destroy(s, name, &o);
    case 5:
      return al_token_admin_repair(s, name, &o);
    default:
      return al_token_admin_slots(s, name, b & 1 ? NULL : &o);
  }
}

static al_op *care_for_fence(al_session *s, const char *name, unsigned kind) {
  switch (kind) {
    case 0:
      return al_mutex_forget_fence(s, name);
    case 1:
      return al_rwlock_forget_fence(s, name);
    case 2:
      return al_admin_forget_fence(s, name);
    default: {
      al_admin_options options;
      al_admin_options_init(&options);
      options.fenced = true;
      return al_admin_repair(s, name, &options);
    }
  }
}

static void keep_op(world *w, al_op *op, int64_t ends_by) {
  begun *slot = &w->ops[w->next_op++ % OPS];
  CHECK(op, "no memory");
  al_op_drop(slot->op);
  *slot = (begun){op, ends_by};
}

/* a: which operation; b: session and name; c: options. */
static void do_begin(world *w, unsigned a, unsigned b, unsigned c) {
  unsigned kind = a % (w->slots.fenced ? 28 : 24);
  int n = (int)(b % NAMES), s = b >> 2 & 1;
  if (!w->sessions[s]) s = 0;
  al_session *session = w->sessions[s];
  int64_t ends_by = AL_NEVER;
  al_op *op;
  if (!session) return;
  TRACE("begin %u on session %d, name %d, options %02x\n", kind, s, n, c);
  al_session_set_time(session, w->now, 1700000000);
  if (kind < 5) {
    al_acquire_options o = acquire_options(c);
    if (o.timeout > 0 && o.timeout < AL_NEVER - w->now) ends_by = w->now + o.timeout;
    op = acquire(w, s, n, kind, &o);
  } else if (kind < 15) {
    op = administer(session, names[n], kind - 5, c);
  } else if (kind < 22) {
    op = administer_tokens(session, names[n], kind - 15, c);
  } else if (kind == 22) {
    op = al_session_open(session);
  } else if (kind > 23) {
    op = care_for_fence(session, names[n], kind - 24);
  } else {
    op = al_session_close(session);
  }
  keep_op(w, op, ends_by);
  settle(w);
}

/* ---- existing locks and operations ------------------------------------------------------------------------------- */

static bool is_of_same_fence(const al_lock *a, const al_lock *b) {
  bool are_alike = a->kind == b->kind && (a->kind == AL_LOCK_SLOT || a->kind == AL_LOCK_MUTEX);
  return are_alike && strcmp(a->name, b->name) == 0;
}

/* Whatever the broker said, no session hands out a number twice. */
static void check_fence(const world *w, const al_lock *lock) {
  CHECK((al_lock_fence(lock) > 0) == w->slots.fenced || lock->kind == AL_LOCK_PERMIT,
        "a lock has the number %lld", (long long)al_lock_fence(lock));
  for (int i = 0; i < LOCKS && w->slots.fenced; i++) {
    const al_lock *other = w->locks[i];
    if (!other || other == lock || other->session != lock->session || !is_of_same_fence(lock, other))
      continue;
    CHECK(other->fence != lock->fence, "the number %lld was given twice", (long long)lock->fence);
  }
}

static void harvest(world *w) {
  for (int i = 0; i < OPS; i++) {
    al_op *op = w->ops[i].op;
    al_lock *lock = op && al_op_done(op) ? al_op_lock(op) : NULL;
    if (!lock) continue;
    check_fence(w, lock);
    al_lock **slot = &w->locks[w->next_lock++ % LOCKS];
    al_lock_drop(*slot);
    *slot = lock;
    TRACE("  operation %d got \"%s\"\n", i, lock->claim->queue);
  }
}

/* a: which lock; b: what to do. */
static void do_lock(world *w, unsigned a, unsigned b, unsigned c) {
  al_lock *lock = NULL;
  (void)c;
  harvest(w);
  for (int i = 0; i < LOCKS && !lock; i++) lock = w->locks[a = (a + (i > 0)) % LOCKS];
  if (!lock) return;
  TRACE("lock %u: %u\n", a, b % 6);
  bool is_rw = lock->kind == AL_LOCK_READ || lock->kind == AL_LOCK_WRITE;
  if (b % 6 == 0) {
    keep_op(w, al_lock_release(lock), AL_NEVER);
  } else if (b % 6 == 1) {
    keep_op(w, al_lock_verify(lock), AL_NEVER);
  } else if (b % 6 == 2 && is_rw) {
    keep_op(w, al_lock_downgrade(lock), AL_NEVER);
  } else if (b % 6 == 3) {
    w->locks[a % LOCKS] = NULL;
    al_lock_drop(lock);
  } else if (b % 6 == 4) {
    keep_op(w, al_lock_release(lock), AL_NEVER);
    w->locks[a % LOCKS] = NULL;
    al_lock_drop(lock);
  } else {
    al_lock_revoked(lock);
    al_lock_kind_of(lock);
    CHECK(al_lock_slot(lock) >= 0 && al_lock_name(lock)[0] && al_lock_acquired_at(lock) > 0,
          "a lock of nothing");
  }
  settle(w);
}

static void ask_about(al_op *op) {
  char reason[AL_MESSAGE_SIZE] = "";
  CHECK(al_op_waiting(op, reason) >= -1, "it waits for less than nothing");
  if (!al_op_done(op)) return;
  al_permits permits = al_op_permits(op);
  CHECK(permits.held <= permits.count, "more permits are held than there are");
  CHECK(al_op_count(op) <= 1 << 30, "%zu slots", al_op_count(op));
  for (size_t i = 0; i <= al_op_seen(op) + 1; i++) al_op_slot(op, i);
}

/* a: which operation; b: drop it or ask for its result. */
static void do_op(world *w, unsigned a, unsigned b, unsigned c) {
  begun *slot = &w->ops[a % OPS];
  (void)c;
  if (!slot->op) return;
  TRACE("operation %u: %s\n", a % OPS, b & 1 ? "drop" : "ask");
  ask_about(slot->op);
  if (!(b & 1)) return;
  al_op_drop(slot->op);
  slot->op = NULL;
  settle(w);
}

/* ---- answers of the broker --------------------------------------------------------------------------------------- */

/* a: connection; b: order of channels; c: how many, 0 for all that there are and will be. */
static void do_answer(world *w, unsigned a, unsigned b, unsigned c) {
  TRACE("answer %u: %u of %u\n", a % w->links, c, b);
  if (c == 0) answer_all(w);
  for (unsigned i = 0; i < c && peer_answer(&w->broker, (int)(a % w->links), b, PEER_TRUTH, 0); i++) {
  }
  settle(w);
}

static const int64_t codes[] = {404, 405, 403, 406, 504, 541, 320, 530, 0, 65535};
static const int64_t counts[] = {0, 1, 2, 70000, 0x7fffffff, 0x80000000, 0xffffffff, 65535, 65536};

/* a: connection and order; b: the kind of lie; c: its argument. */
static void do_lie(world *w, unsigned a, unsigned b, unsigned c) {
  peer_lie lie = (peer_lie)(PEER_REFUSES + b % (PEER_COUNTS - PEER_REFUSES + 1));
  int64_t argument = lie == PEER_COUNTS ? PICK(counts, c) : PICK(codes, c);
  TRACE("lie %d to %u, %lld\n", lie, a % w->links, (long long)argument);
  w->broker.is_truthful = false;
  peer_answer(&w->broker, (int)(a % w->links), a / w->links, lie, (unsigned)argument);
  settle(w);
}

static void note_victim(world *w, const wire_method *method, int index, int channel, wire_value tag) {
  bool closes = WIRE_ID(method->class_id, method->id) == WIRE_CHANNEL_CLOSE,
       cancels = WIRE_ID(method->class_id, method->id) == WIRE_CANCEL;
  w->closing = 0;
  if (w->is_raw[index] || w->broker.connections[index].out.length > 0) return;
  for (int i = 0; i < LOCKS; i++) {
    const al_lock *lock = w->locks[i];
    if (!lock || holder_index(w, lock) != index || channel_of(lock) != channel) continue;
    const char *ticket = al_lock_ticket(lock);
    if (closes) w->closing = i + 1;
    if (cancels && tag.length == strlen(ticket) && memcmp(tag.bytes, ticket, tag.length) == 0)
      w->closing = i + 1;
  }
}

static void check_victim(world *w) {
  al_lock *lock = w->closing ? w->locks[w->closing - 1] : NULL;
  if (lock && !w->holds_back)
    CHECK(al_lock_held(lock, w->now) != AL_OK, "%s says held, and it was taken", lock->claim->queue);
  w->closing = 0;
}

/* Text that may be meaningful: the name of a queue, a consumer, a lock's ticket. */
static wire_value any_text(world *w, unsigned b) {
  static const char *const words[] = {"",
                                      "q",
                                      "n-1-A",
                                      "amqplocks.token",
                                      "amqplocks.revoke",
                                      "amqplocks.waiting",
                                      "amqplocks.permit",
                                      "7",
                                      "NOT_FOUND - no queue",
                                      "connection limit ("};
  static char many[300];
  unsigned which = b & 63, kind = b >> 6;
  const peer_queue *queue = w->broker.queues;
  const peer_consumer *consumer = w->broker.consumers;
  const al_lock *lock = w->locks[which % LOCKS];
  for (unsigned i = 0; queue && queue->next && i < which; i++) queue = queue->next;
  for (unsigned i = 0; consumer && consumer->next && i < which; i++) consumer = consumer->next;
  if (kind == 0 && queue) return WIRE_TEXT(queue->name);
  if (kind == 1 && consumer) return WIRE_TEXT(consumer->tag);
  if (kind == 2 && lock) return WIRE_TEXT(al_lock_ticket(lock));
  if (which == 63) return (wire_value){.bytes = memset(many, 'x', sizeof many), .length = 255};
  if (which == 62) return (wire_value){.bytes = "\0\xff\n", .length = 3};
  return WIRE_TEXT(words[which % (sizeof words / sizeof *words)]);
}

static const int64_t numbers[] = {0,   1,   2,     3,     4,          5,    404, 405,       403,      406,
                                  530, 312, 65535, 65536, 0xffffffff, 4096, -1,  INT64_MAX, INT64_MIN};

static wire_value any_field(world *w, char letter) {
  unsigned b = byte(w);
  if (letter == 's' || letter == 'S') return any_text(w, b);
  if (letter == 'b') return WIRE_NUMBER(b & 1);
  if (letter != 't') return WIRE_NUMBER(b < 128 ? PICK(numbers, b) : b);
  size_t left = (size_t)(w->end - w->at), length = b % 32 < left ? b % 32 : left;
  wire_value table = {.bytes = w->at, .length = length};
  w->at += length;
  return table;
}

static void align(world *w, const uint8_t *begin) {
  size_t beyond = (size_t)(w->at - begin) % 4, left = (size_t)(w->end - w->at);
  if (beyond > 0) w->at += 4 - beyond < left ? 4 - beyond : left;
}

/* a: connection; b: which method; c: channel. Its fields are read from the program. */
static void do_say(world *w, unsigned a, unsigned b, unsigned c) {
  const wire_method *method = wire_method_at(b);
  const uint8_t *begin = w->at;
  int index = (int)(a % w->links), channel = c < 192 ? (int)(c % 12) : (int)c * 256;
  wire_value fields[WIRE_FIELDS + 4] = {{0}};
  harvest(w);
  for (int i = 0; method->fields[i]; i++) fields[i] = any_field(w, method->fields[i]);
  align(w, begin);
  TRACE("say %s to %d on channel %d\n", method->name, index, channel);
  w->broker.is_truthful = false;
  if (!w->broker.connections[index].is_up) return;
  note_victim(w, method, index, channel, fields[0]);
  wire_say(&w->broker.connections[index].out, channel, method, fields);
  settle(w);
  check_victim(w);
}

/* a: connection; b: a delivery or a similar method; c: channel. Tag, key, message id and type, and sizes from the
 * program. */
static void do_content(world *w, unsigned a, unsigned b, unsigned c) {
  static const unsigned methods[] = {WIRE_DELIVER, WIRE_RETURN, WIRE_GET_OK};
  const wire_method *method = wire_method_by(methods[b % 3]);
  const uint8_t *begin = w->at;
  int index = (int)(a % w->links), channel = (int)(c % 12);
  wire_value fields[WIRE_FIELDS] = {{0}};
  for (int i = 0; method->fields[i]; i++) fields[i] = any_field(w, method->fields[i]);
  wire_value id = any_text(w, byte(w)), correlation = any_text(w, byte(w)), kind = any_text(w, byte(w));
  unsigned shape = byte(w), size = shape >> 3 & 7;
  bool has_headers = w->slots.fenced && shape & 8;
  wire_value headers = has_headers ? any_field(w, 't') : WIRE_TEXT("");
  align(w, begin);
  TRACE("%s to %d on channel %d, shape %02x\n", method->name, index, channel, shape);
  w->broker.is_truthful = false;
  if (!w->broker.connections[index].is_up) return;
  wire_buffer *out = &w->broker.connections[index].out;
  static const uint8_t body[] = "a message's body";
  wire_say(out, channel, method, fields);
  if (has_headers)
    wire_fence_header(out, channel, headers);
  else if (!(shape & 1))
    wire_header(out, channel, shape & 2 ? 50 : 60, shape & 4 ? UINT64_MAX : size, id, correlation, kind);
  if (size > 0 && !(shape & 128)) wire_frame_of(out, WIRE_BODY, channel, body, shape & 64 ? size + 1 : size);
  settle(w);
}

/* a: connection; b: how many bytes of the program. */
static void do_raw(world *w, unsigned a, unsigned b, unsigned c) {
  size_t left = (size_t)(w->end - w->at), length = (b + 1) * 4 < left ? (b + 1) * 4 : left;
  int index = (int)(a % w->links);
  (void)c;
  TRACE("%zu raw bytes to %d\n", length, index);
  w->broker.is_truthful = false;
  w->is_raw[index] = true;
  if (w->broker.connections[index].is_up) wire_append(&w->broker.connections[index].out, w->at, length);
  w->at += length;
  settle(w);
}

/* Changes bytes that are under way. a: connection; b: position; c: change. */
static void do_corrupt(world *w, unsigned a, unsigned b, unsigned c) {
  int index = (int)(a % w->links);
  wire_buffer *out = &w->broker.connections[index].out;
  if (out->length == 0) return;
  TRACE("corrupt what %d is told, at %u of %zu, with %02x\n", index, b, out->length, c);
  w->broker.is_truthful = false;
  w->is_raw[index] = true;
  if (a & 128)
    out->length -= b % out->length;
  else
    out->bytes[b % out->length] ^= (uint8_t)c;
}

/* ---- other events ------------------------------------------------------------------------------------------------ */

static const int64_t times[] = {AL_MILLISECOND,      1,
                                20 * AL_MILLISECOND, 100 * AL_MILLISECOND,
                                AL_SECOND,           5 * AL_SECOND,
                                20 * AL_SECOND,      60 * AL_SECOND,
                                600 * AL_SECOND};

/* a: how long; b: in one step, or turn by turn, with a broker that answers or is silent. */
static void do_time(world *w, unsigned a, unsigned b, unsigned c) {
  int64_t time = PICK(times, a), wake = wake_of(w);
  (void)c;
  if (a & 128) time = wake > w->now && wake < w->now + 600 * AL_SECOND ? wake - w->now : 1;
  TRACE("%g s pass, %s\n", (double)time / (double)AL_SECOND,
        b % 3 == 0   ? "at once"
        : b % 3 == 1 ? "in silence"
                     : "answered");
  if (b % 3 > 0) {
    live(w, time, b % 3 == 2, 40);
    return;
  }
  w->now += time;
  settle(w);
}

/* Names of queues that were mentioned, or are likely to be. */
static void any_name(world *w, unsigned b, char out[AL_NAME_SIZE]) {
  static const char *const forms[] = {"%s-1-A",
                                      "%s-1-B",
                                      "%s-2-A",
                                      "%s-2-B",
                                      "%s-3-A",
                                      "%s-3-B",
                                      "%s-admin",
                                      "%s-bell",
                                      "%s.semaphore",
                                      "%s.semaphore-count",
                                      "%s-tokenadmin",
                                      "%s-mutex",
                                      "%s-mutexbell",
                                      "%s-writer",
                                      "%s-rwbell",
                                      "%s-5-A",
                                      "%s-20-A",
                                      "%s-fence",
                                      "%s-mutexfence",
                                      "%s-rwfence",
                                      "%s-mutexfence-maker",
                                      "%s-mutexfence-unfinished"};
  const peer_queue *queue = w->broker.queues;
  unsigned which = b & 127, count = w->slots.fenced ? sizeof forms / sizeof *forms : 17;
  for (unsigned i = 0; queue && queue->next && i < which; i++) queue = queue->next;
  if (b & 128 && queue)
    snprintf(out, AL_NAME_SIZE, "%s", queue->name);
  else
    snprintf(out, AL_NAME_SIZE, forms[which % count], names[which / count % NAMES]);
}

static peer_message any_message(unsigned c) {
  static const char *const kinds[] = {"amqplocks.token",  "amqplocks.revoke", "amqplocks.waiting",
                                      "amqplocks.permit", "amqplocks.mark",   ""};
  peer_message message = {.id = "id"};
  snprintf(message.kind, sizeof message.kind, "%s", kinds[c % 6]);
  snprintf(message.id, sizeof message.id, "%u", c / 6);
  return message;
}

/* Other clients at the same broker, and the broker itself. a: what; b: which queue or connection; c: how. */
static void do_world(world *w, unsigned a, unsigned b, unsigned c) {
  char name[AL_NAME_SIZE];
  int index = (int)(b % w->links);
  any_name(w, b, name);
  peer_queue *queue = peer_find(&w->broker, name);
  TRACE("world %u: %s, %d, %u\n", a % 10, name, index, c);
  switch (a % 10) {
    case 0:
      if (!queue) peer_declare(&w->broker, name, PEER_FOREIGNER)->most = 0;
      break;
    case 1:
      if (queue && queue->owner == PEER_FOREIGNER) peer_delete(&w->broker, queue);
      break;
    case 2:
      if (queue) peer_delete(&w->broker, queue);
      break;
    case 3:
      if (!queue) peer_declare(&w->broker, name, PEER_NOBODY)->most = c & 1 ? 0 : 1000;
      break;
    case 4:
      for (unsigned i = 0; queue && i <= c >> 5; i++) peer_publish(&w->broker, queue, any_message(c & 31));
      break;
    case 5:
      peer_close_connection(&w->broker, index, (unsigned)PICK(codes, c), "CONNECTION_FORCED");
      break;
    case 6:
      peer_close_channel(&w->broker, index, (int)(c % 12) + 1, 406,
                         "PRECONDITION_FAILED - delivery acknowledgement");
      break;
    case 7:
      peer_block(&w->broker, index, c & 1);
      break;
    case 8:
      if (queue) queue->count = 0;
      break;
    case 9:
      if (link_of(w, index) && link_of(w, index)->port)
        al_bytes_down(link_of(w, index)->port, AL_UNREACHABLE, "reset");
      peer_disconnect(&w->broker, index);
  }
  settle(w);
}

/* a: what; b: how. */
static void do_mode(world *w, unsigned a, unsigned b, unsigned c) {
  (void)c;
  TRACE("mode %u: %u\n", a % 3, b);
  if (a % 3 == 0) w->holds_back = b & 1;
  if (a % 3 == 1) w->split = (int)(b % 3);
  if (a % 3 == 2) w->refuses = b & 1;
  settle(w);
}

static void drop_session(world *w, int s) {
  if (!w->sessions[s]) return;
  for (int i = 0; i < LOCKS; i++) {
    if (!w->locks[i] || w->locks[i]->session != w->sessions[s]) continue;
    al_lock *lock = w->locks[i];
    w->locks[i] = NULL;
    al_lock_drop(lock);
  }
  for (int n = 0; n < NAMES; n++) {
    al_semaphore_drop(w->semaphores[s][n]);
    al_token_semaphore_drop(w->tokens[s][n]);
    al_mutex_drop(w->mutexes[s][n]);
    al_rwlock_drop(w->rwlocks[s][n]);
    w->semaphores[s][n] = NULL;
    w->tokens[s][n] = NULL;
    w->mutexes[s][n] = NULL;
    w->rwlocks[s][n] = NULL;
  }
  for (int i = 0; i < OPS; i++) {
    if (!w->ops[i].op || w->ops[i].op->session != w->sessions[s]) continue;
    al_op_drop(w->ops[i].op);
    w->ops[i].op = NULL;
  }
  al_session_drop(w->sessions[s]);
  w->sessions[s] = NULL;
}

/* a: which session; b: what to do. */
static void do_session(world *w, unsigned a, unsigned b, unsigned c) {
  al_session *session = w->sessions[a & 1];
  al_note note;
  (void)c;
  if (!session) return;
  TRACE("session %u: %u\n", a & 1, b % 4);
  if (b % 4 == 0) al_session_abort(session);
  if (b % 4 == 1)
    while (al_session_news(session, &note)) {
    }
  if (b % 4 == 2) al_session_alerts(session);
  if (b % 4 == 3 && (a & 1)) {
    drop_session(w, 1);
    for (int i = 0; i < LINKS; i++)
      if (places[i].session == 1) peer_disconnect(&w->broker, i);
  }
  settle(w);
}

typedef void instruction(world *, unsigned, unsigned, unsigned);

static instruction *const instructions[] = {do_begin,   do_answer, do_lock,  do_time, do_world,   do_op,
                                            do_lie,     do_say,    do_mode,  do_raw,  do_content, do_corrupt,
                                            do_session, do_answer, do_begin, do_time};

static void run(world *w) {
  while (w->end - w->at >= 4) {
    const uint8_t *i = w->at;
    w->at += 4;
    instructions[i[0] % 16](w, i[1], i[2], i[3]);
  }
  harvest(w);
}

/* ---- beginning and ending ---------------------------------------------------------------------------------------- */

static void say(al_trace *trace, const char *format, ...) {
  char line[AL_MESSAGE_SIZE];
  va_list arguments;
  (void)trace;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
}

static void end_trace(al_trace *trace) { (void)trace; }

/* All is traced, so that what words are made of is read. */
static void trace_all(al_session *session) {
  static al_trace trace = {.say = say, .end = end_trace};
  al_link *links[AL_LINKS];
  al_session_links(session, links);
  for (int i = 0; i < AL_LINKS; i++) links[i]->trace = &trace;
}

static al_session *new_session(unsigned b, unsigned seed) {
  static const int64_t beats[] = {10, 1, 60, 600}, limits[] = {2047, 1, 3, 16};
  static const int64_t patience[] = {5 * AL_SECOND, 50 * AL_MILLISECOND, AL_SECOND, 60 * AL_SECOND};
  al_settings settings;
  al_settings_init(&settings);
  snprintf(settings.name, sizeof settings.name, "fuzz");
  settings.heartbeat = (int)PICK(beats, b & 3);
  settings.channel_max = (int)PICK(limits, b >> 2 & 3);
  settings.timeout = PICK(patience, b >> 4 & 3);
  settings.external = b >> 6 == 3;
  al_session *session = al_session_new(&settings, seed);
  CHECK(session, "no memory");
  trace_all(session);
  return session;
}

static void begin(world *w) {
  unsigned a = byte(w), b = byte(w), c = byte(w), d = byte(w);
  static const int64_t channels[] = {2047, 0, 1, 5};
  w->now = b >> 6 == 2 ? LATE : 1000 * AL_SECOND;
  w->broker.is_truthful = true;
  w->answers_left = ANSWERS_MOST;
  w->broker.cancels_late = a >> 2 & 1;
  w->broker.frame_max = a & 8 ? 4096 : 131072;
  w->broker.channel_max = (int)PICK(channels, a >> 4 & 3);
  w->probing = (al_probing)(c % 3);
  w->slots = (al_semaphore_options){.strategy = (al_strategy)(c / 3 % 3),
                                    .max_attempts = c & 16 ? 1 : 8,
                                    .probing = w->probing,
                                    .silent = c >> 5 & 1,
                                    .most = c >> 6 == 3,
                                    .fenced = d >> 7};
  w->links = d >> 6 == 3 ? LINKS_CHOSEN : d >> 7 ? LINKS_WITHOUT_QUORUM : LINKS_WITHOUT_FENCES;
  w->sessions[0] = new_session(b, d);
  if (a & 2) w->sessions[1] = new_session(b, d + 1);
  w->heartbeat = w->sessions[0]->settings.heartbeat * AL_SECOND;
  for (int i = 0; i < SESSIONS; i++)
    if (w->sessions[i]) w->sessions[i]->is_shared = a & 1;
  settle(w);
}

static void drop_all_ops(world *w) {
  for (int i = 0; i < OPS; i++) {
    al_op_drop(w->ops[i].op);
    w->ops[i].op = NULL;
  }
}

static void drop_all_locks(world *w) {
  for (int i = 0; i < LOCKS; i++) {
    al_lock_drop(w->locks[i]);
    w->locks[i] = NULL;
  }
}

/* Everything is released, and the broker answers everything: then nothing is left there. */
static void end_in_truth(world *w) {
  char words[300];
  w->holds_back = w->refuses = false;
  w->split = 0;
  for (int i = 0; i < LINKS; i++) peer_block(&w->broker, i, false);
  w->answers_left += ANSWERS_MOST / 2;
  answer_all(w);
  harvest(w);
  drop_all_ops(w);
  drop_all_locks(w);
  live(w, 30 * AL_SECOND, true, 300);
  for (int i = 0; w->broker.is_truthful && i < LINKS; i++)
    CHECK(peer_leftovers(&w->broker, i, words, sizeof words) == 0, "%s was left behind", words);
  for (int s = SESSIONS - 1; s >= 0; s--) {
    if (!w->sessions[s]) continue;
    keep_op(w, al_session_close(w->sessions[s]), w->now + w->sessions[s]->settings.timeout + 1);
    live(w, 70 * AL_SECOND, true, 300);
  }
  for (int i = 0; i < OPS; i++) CHECK(!w->ops[i].op || al_op_done(w->ops[i].op), "closing never ended");
}

static void check_all_over(world *w) {
  for (int i = 0; i < OPS; i++)
    CHECK(!w->ops[i].op || al_op_done(w->ops[i].op), "operation %d never ended", i);
  harvest(w);
  for (int i = 0; i < LOCKS; i++)
    CHECK(!w->locks[i] || al_lock_held(w->locks[i], w->now) != AL_OK, "a lock is held without a connection");
}

/* The broker sends nothing any more, and refuses connections. */
static void end_in_silence(world *w) {
  w->refuses = true;
  w->holds_back = false;
  for (int i = 0; i < LINKS; i++) {
    wire_buffer *out = &w->broker.connections[i].out;
    if (out->length > 0)
      w->broker.is_truthful = false; /* bytes that the core should have received are lost */
    out->length = 0;
  }
  live(w, 60 * AL_SECOND, false, 1000);
  for (int i = 0; i < 100; i++) { /* in long steps: many operations that wait for each other recheck often */
    w->now += 30 * AL_SECOND;
    settle(w);
  }
  check_all_over(w);
}

static void end_in_ruin(world *w) {
  w->refuses = true;
  for (int i = 0; i < LINKS; i++) {
    al_link *link = link_of(w, i);
    if (link && link->port) al_bytes_down(link->port, AL_UNREACHABLE, "the end");
    peer_disconnect(&w->broker, i);
  }
  settle(w);
  live(w, 60 * AL_SECOND, false, 200);
  check_all_over(w);
}

static void end(world *w, unsigned how) {
  TRACE("end %u\n", how);
  if (how == 0) end_in_truth(w);
  if (how == 1) end_in_silence(w);
  if (how == 2) end_in_ruin(w);
  drop_session(w, how & 1);
  drop_session(w, !(how & 1));
  drop_all_ops(w);
  peer_free(&w->broker);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size < 4) return 0;
  world *w = calloc(1, sizeof *w);
  CHECK(w, "no memory");
  traces = getenv("TRACE") != NULL;
  memset(names[2], 'x', 230);
  w->at = data;
  w->end = data + size;
  begin(w);
  run(w);
  end(w, data[0] >> 6);
  free(w);
  return 0;
}
