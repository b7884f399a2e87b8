/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Distributed semaphores, mutexes and readers–writer locks held in RabbitMQ: the C interface.
 *
 * A session is two AMQP connections to one broker: the holder, on which locks live and nothing is ever published,
 * and the prober, opened when first needed, which asks whether queues exist. Whatever talks to the broker is an
 * operation: begun by one call, moved along by al_native_wait(), finished when al_op_done() says so, and given back
 * with al_op_drop(), which also abandons it when it is not finished; what it had claimed is then undone behind the
 * caller's back.
 *
 *     al_settings settings;
 *     al_settings_init(&settings);
 *     al_session *session = al_native_new(&settings);
 *     al_semaphore *images = al_semaphore_new(session, "images", NULL);
 *     al_op *op = al_semaphore_acquire(images, NULL);
 *     while (!al_op_done(op)) al_native_wait(session, op);
 *     al_lock *lock = al_op_lock(op);          // NULL: al_op_code(op), al_op_message(op) say why
 *
 * Failure. An operation fails with the codes that are named beside the function that begins it, and any with AL_CLOSED,
 * AL_FORKED and AL_NO_MEMORY. Its message is for people.
 *
 * Waiting. Only al_native_wait() waits for the broker, and nothing calls back. Times are nanoseconds of one clock that also
 * counts while the system sleeps: al_system_now().
 *
 * Threads. Nothing here is to be called by two threads at once for the same session, or for what was made of it
 * (semaphores, operations, locks); a mutex of the program's own around every such call lets several share it. Different
 * sessions share nothing: a session for each thread needs no mutex at all. A session that holds locks, or waits for one,
 * has a thread of its own, which keeps its connections alive while the program is elsewhere; it blocks all signals, and
 * ends with the session.
 *
 * Forks. In a child of the process that made it a session is of no use: operations fail with AL_FORKED, and the child
 * neither ends nor disturbs what its parent has. In the child a handler of pthread_atfork() replaces the descriptors of all
 * sessions by /dev/null, so the locks of a parent that is killed are free at once, though the child lives on. They stay
 * open as /dev/null: the child may close them, and open files of its own by their numbers, which no session of the parent
 * touches. Children of _Fork() and of clone() keep copies, and the locks, until they end, close all descriptors from 3 on,
 * or the broker misses the heartbeats.
 *
 * Memory. What a function gives as a pointer that is not const belongs to the caller, who gives it back with the _drop
 * function of its type; NULL is no memory. In whatever order that happens: what still needs another thing keeps it alive.
 * Every _drop function takes NULL, and none of them waits for the broker. No other function takes NULL unless it says so.
 * Text belongs to what was asked for it, and lasts as long. Text that is given is copied. */
#ifndef AMQPLOCKS_H
#define AMQPLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef AL_HIDDEN /* everything below stays inside of what is built with it */
#pragma GCC visibility push(hidden)
#else
#pragma GCC visibility push(default)
#endif

#define AL_VERSION "0.1.0"

#define AL_SECOND INT64_C(1000000000)
#define AL_MILLISECOND INT64_C(1000000)
#define AL_NEVER INT64_MAX

#define AL_NAME_SIZE 256    /* a queue name with its end: AMQP short strings hold 255 bytes */
#define AL_MESSAGE_SIZE 512 /* an error message with its end */
#define AL_TICKET_SIZE 17   /* 64 bits in lower-case hexadecimal, with the end */
#define AL_SLOTS_MAX 65535  /* the largest slot number */
#define AL_HOSTS_MAX 64     /* the most nodes of a cluster that a session is given */

/* ---- results ---------------------------------------------------------------------------------------------------- */

/* What can go wrong. The names are stable and the same for every language: al_code_name(). */
typedef enum al_code {
  AL_OK,
  AL_TIMEOUT,     /* the caller's own time ran out */
  AL_BUSY,        /* every slot is held */
  AL_CONTENDED,   /* others were faster, max_attempts times */
  AL_DEADLOCK,    /* every slot is held by this very session */
  AL_NOT_FOUND,   /* there is no such semaphore */
  AL_EXISTS,      /* there is one already */
  AL_LOST,        /* the lock is gone */
  AL_SUSPECT,     /* the lock may be gone: the broker was silent for too long */
  AL_REMOVED,     /* an administrator took the slot away */
  AL_NOT_HELD,    /* released before */
  AL_CLOSED,      /* the session was closed */
  AL_REFUSED,     /* the broker denies the permission */
  AL_AUTH,        /* wrong user or password */
  AL_VHOST,       /* no such virtual host, or no access to it */
  AL_UNREACHABLE, /* no broker, or no answer from it */
  AL_UNAVAILABLE, /* a queue exists but its node is down, or it refuses */
  AL_TLS,         /* no TLS with the broker: its certificate, ours, or no TLS at that port */
  AL_BLOCKED,     /* the broker has a memory or disk alarm and reads no publishers */
  AL_CONFLICT,    /* a queue stands in the way, or one is missing in the row */
  AL_SQUATTED,    /* a queue of ours by name that is none of ours by kind */
  AL_LIMIT,       /* channels, queues or connections */
  AL_PHASE,       /* not here: for event loops and OpenResty, never given in C */
  AL_FORKED,      /* this is a child of the process that opened the session */
  AL_PROTOCOL,    /* not AMQP, or broken AMQP; settings that cannot be sent */
  AL_NO_MEMORY,   /* there was none left in this process */
  AL_URL          /* a URL that is none: for where URLs are read, al_settings_url() and Lua */
} al_code;

/* The code's stable name, such as "not_found"; "ok" for AL_OK. Never NULL. */
const char *al_code_name(al_code code);

/* ---- settings --------------------------------------------------------------------------------------------------- */

typedef struct al_settings {
  char host[256];
  int port;
  bool tls;
  char user[256], password[256], vhost[256];
  bool external; /* SASL EXTERNAL, the client certificate being the user; otherwise PLAIN */
  char
      name[128]; /* shown by the broker's tools as the connection's name, and as every lock's holder: UTF-8 */
  int heartbeat; /* whole seconds, 1 to 65535 */
  int channel_max;                      /* channels wanted on a connection; the broker may allow fewer */
  int64_t timeout;                      /* for every exchange with the broker that is not a wait for a slot */
  bool verify;                          /* TLS: check the broker's certificate and its name */
  char ca[1024], cert[1024], key[1024]; /* TLS: PEM files; ca empty: the system's bundle */
  char server_name[256];                /* TLS: the name the certificate must bear; empty: host */
} al_settings;

/* amqp://guest:guest@localhost:5672, heartbeat 10 s, timeout 5 s, certificates verified. */
void al_settings_init(al_settings *settings);

/* Reads a URL by RabbitMQ's URI specification and its query parameters (heartbeat, connection_timeout in
 * milliseconds, channel_max, auth_mechanism, cacertfile, certfile, keyfile, verify, server_name_indication) over what
 * `settings` held before. False, whose code is always AL_URL: `why` names the part that is wrong and its cure, and never the
 * password; `settings` is then undefined. */
bool al_settings_url(al_settings *settings, const char *url, char why[AL_MESSAGE_SIZE]);

/* The same for a URL that may name several hosts, amqp://user:password@a,b:5673,c/vhost: it is read over what
 * settings[0] held before, and settings[0] to settings[n - 1] then differ in nothing but host and port. `size`: how many
 * there is room for, at least 1. Gives n; 0 as al_settings_url() gives false, also where there is not that much room. */
size_t al_settings_urls(al_settings *settings, size_t size, const char *url, char why[AL_MESSAGE_SIZE]);

/* Whether the broker can take `name`, which is UTF-8 without control characters, and `vhost`, which is UTF-8. False: `why`
 * says what is wrong. Connecting with such settings fails with AL_PROTOCOL. */
bool al_settings_check(const al_settings *settings, char why[AL_MESSAGE_SIZE]);

/* ---- sessions --------------------------------------------------------------------------------------------------- */

typedef struct al_session al_session;
typedef struct al_semaphore al_semaphore;
typedef struct al_token_semaphore al_token_semaphore;
typedef struct al_mutex al_mutex;
typedef struct al_rwlock al_rwlock;
typedef struct al_lock al_lock;
typedef struct al_op al_op;

/* What the time is: CLOCK_BOOTTIME, in nanoseconds. */
int64_t al_system_now(void);

/* A session over rabbitmq-c's sockets, with a copy of `settings`. Nothing is opened yet: every operation opens what it
 * needs, and opens it anew when it was lost: at once if it had lasted, else after a pause that grows from 50 ms to 5 s while
 * that fails, which an operation waits for within its own deadline. Locks from before stay lost. */
al_session *al_native_new(const al_settings *settings);

/* The same for several nodes of one cluster, 1 ≤ count ≤ AL_HOSTS_MAX: each connection is tried with one after another, in
 * this order, until one takes it; each has `timeout` ÷ `count` for that. AL_AUTH, AL_VHOST and AL_TLS end the attempt, and so
 * does AL_CONFLICT: a broker of another cluster, by its server property cluster_name, than that of the connection before.
 * Every later attempt goes on with the next node. The virtual host, the name and the timeout are settings[0]'s. The order may
 * be by chance: that is for the program to shuffle. NULL also for another count. */
al_session *al_native_new_list(const al_settings *settings, size_t count);

/* Moves the session along until `op`, one of its own, is done, a signal arrives or about a second has passed, whichever is
 * first. May wait; opening a connection waits at most `settings.timeout`, plus what the system's resolver takes. */
void al_native_wait(al_session *session, al_op *op);

/* Moves the session along without waiting: reads what has arrived, writes what the broker takes, keeps the heartbeats.
 * From its first claim on, or its first wait for somebody, a session has a thread that does so while its owner is away:
 * al_native_wait() starts it. */
void al_native_touch(al_session *session);

/* For loops that wait for many things: how often so far something has become of a lock that its owner should look at:
 * it was lost, or asked back. The number does not grow by what the owner does: releasing, closing. Asking makes
 * al_native_pollfd() silent again. 0 in a child of the process that made the session. */
uint64_t al_session_alerts(al_session *session);

/* News for people, for a log: connections opened and lost, locks lost, alarms of the broker. */
typedef struct al_note {
  bool is_warning; /* otherwise it is for information */
  char text[AL_MESSAGE_SIZE];
} al_note;

/* Copies the oldest of them, which is thereby forgotten. False: there is none. A session remembers the last sixteen. */
bool al_session_news(al_session *session, al_note *note);

/* A descriptor for poll() and its kin that is readable while there are alerts nobody has asked for; nothing else may be
 * done with it. Asking for it starts the thread, if one is due and it could not be started before. The session owns
 * it and closes it with itself. -1: the session was closed, this is a child of the process that made it, or no descriptor
 * is left. */
int al_native_pollfd(al_session *session);

/* In how many nanoseconds the session wants to be touched: AL_NEVER while its thread does that or it holds no locks; less
 * where no thread could be started. */
int64_t al_native_timeout(al_session *session);

/* Connects the holder, so that wrong credentials show at once. Fails with AL_AUTH, AL_VHOST, AL_UNREACHABLE, AL_TLS,
 * AL_PROTOCOL, AL_LIMIT, AL_CONFLICT. Nobody has to: every operation opens what it needs. */
al_op *al_session_open(al_session *session);

/* Releases every lock, closes both connections and waits for the broker to say so, at most `settings.timeout`; the
 * session is closed in any case. Later operations fail with AL_CLOSED. */
al_op *al_session_close(al_session *session);

/* Closes both connections at once and without a word. The broker releases what they held: locks are AL_LOST, so that
 * al_lock_verify() and its like fail with that; other operations fail with AL_CLOSED. */
void al_session_abort(al_session *session);

/* Gives the session back, as al_session_abort() does. Whatever still refers to it (operations, locks, semaphores) keeps its
 * memory alive. */
void al_session_drop(al_session *session);

/* ---- operations ------------------------------------------------------------------------------------------------- */

/* Whether it has ended, one way or the other. */
bool al_op_done(const al_op *op);

/* AL_OK, or why it failed. Only when it is done. */
al_code al_op_code(const al_op *op);

/* "code: what, to what, and what to do", and never a password; "" when it did not fail. Only when it is done. */
const char *al_op_message(const al_op *op);

/* How long it has been waiting for somebody else to let go, in nanoseconds, and in `reason` how things stood when it
 * last looked, such as "3 of 3 held"; -1 if it is not waiting. */
int64_t al_op_waiting(const al_op *op, char reason[AL_MESSAGE_SIZE]);

/* The lock an acquire got, once; NULL if there is none. It was certain when the operation was done; who comes to it later
 * asks al_lock_held(), and al_lock_verify() if it is AL_SUSPECT, before anything is done with it. */
al_lock *al_op_lock(al_op *op);

/* The number of slots, for operations of administration; otherwise 0. */
size_t al_op_count(const al_op *op);

/* Slot 1 ≤ slot ≤ al_op_seen(op), as al_admin_status() saw it; any other neither exists nor is held. */
typedef struct al_slot {
  bool exists, held;
} al_slot;
size_t al_op_seen(const al_op *op);
al_slot al_op_slot(const al_op *op, size_t slot);

/* Gives the operation back; abandons it first if it is not done. A lock that nobody has asked for is let go. */
void al_op_drop(al_op *op);

/* ---- the persistent semaphore, for those who lock ("Lock Clients") ---------------------------------------------- */

typedef enum al_strategy {
  AL_ASCENDING, /* from slot 1 upwards; the specification's own */
  AL_RANDOM,    /* from a slot picked by chance */
  AL_LAST       /* from the slot held before */
} al_strategy;

typedef enum al_probing {
  AL_PROBE_AUTO,    /* by publishing; passively while the broker is blocked or denies publishing */
  AL_PROBE_PUBLISH, /* mandatory publishes with confirms */
  AL_PROBE_PASSIVE  /* passive declares */
} al_probing;

typedef struct al_semaphore_options {
  al_strategy strategy;
  int max_attempts; /* races lost at the last step before a look counts as busy; at least 1 */
  al_probing probing;
  bool silent; /* it has no doorbell, being made by other software: nobody asks for one */
  int most; /* slots above this one are left alone; 0: none is. 1 makes a mutex of it, however many slots there are */
} al_semaphore_options;

/* False: `why` says what is wrong with a name for a lock. Everything below takes only names that pass, and does not look
 * again. */
bool al_name_check(const char *name, size_t length, char why[AL_MESSAGE_SIZE]);

/* One semaphore as seen by this session. Asks the broker nothing. `options` NULL: ascending, 8, auto, not silent, all
 * slots. Operations under way keep what they need of it when it is given back. */
al_semaphore *al_semaphore_new(al_session *session, const char *name, const al_semaphore_options *options);
void al_semaphore_drop(al_semaphore *semaphore);

typedef struct al_acquire_options {
  int64_t timeout; /* how long to wait for a slot; 0 looks once, AL_NEVER waits for ever */
  bool fair;    /* behind everybody who waits already; otherwise a free slot is taken by whoever finds it */
  int priority; /* those who wait with a higher one are served first */
  int64_t poll; /* a waiter looks for itself so often, in case nobody rings */
} al_acquire_options;

/* for ever, not fair, priority 0, 5 s. */
void al_acquire_options_init(al_acquire_options *options);

/* "Acquiring a Lock". `options` NULL: as al_acquire_options_init() makes them. Fails with AL_TIMEOUT, AL_BUSY
 * (timeout 0), AL_CONTENDED (timeout 0), AL_DEADLOCK, AL_NOT_FOUND, AL_REFUSED, AL_UNREACHABLE, AL_UNAVAILABLE,
 * AL_BLOCKED, AL_SQUATTED, AL_LIMIT, AL_CLOSED. Whatever it fails with, nothing stays claimed. */
al_op *al_semaphore_acquire(al_semaphore *semaphore, const al_acquire_options *options);

/* ---- the token semaphore, for those who lock -------------------------------------------------------------------- */

/* One token semaphore as seen by this session. Asks the broker nothing. `quorum`: its queue is a quorum queue; those who
 * hold a permit then ask to be left it for ten years, where the broker lets consumers ask (from 4.3). A quorum queue that
 * has lost its majority ends the connection of a client that takes a permit, with every lock on it: let a session that
 * takes quorum permits hold nothing else. */
al_token_semaphore *al_token_semaphore_new(al_session *session, const char *name, bool quorum);
void al_token_semaphore_drop(al_token_semaphore *semaphore);

/* Takes a permit: whatever message is in the queue. `options` NULL: as al_acquire_options_init() makes them; whoever waits
 * is always served in order, by priority, and never looks: `fair` and `poll` change nothing. Fails with AL_TIMEOUT, AL_BUSY
 * (timeout 0), AL_NOT_FOUND (also if the queue goes while it waits), AL_REFUSED, AL_UNREACHABLE, AL_UNAVAILABLE,
 * AL_SQUATTED, AL_CONFLICT (`quorum`, and it is none), AL_LIMIT, AL_CLOSED. Whatever it fails with, nothing stays taken,
 * and nothing consumed. */
al_op *al_token_semaphore_acquire(al_token_semaphore *semaphore, const al_acquire_options *options);

/* ---- the mutex ------------------------------------------------------------------------------------------------- */

/* A true mutex: it exists while it is held, and nobody has to create it. (One that an administrator creates, destroys and
 * revokes is a semaphore of one slot.) Asks the broker nothing. `max_attempts`: races lost before a look counts as busy, at
 * least 1. */
al_mutex *al_mutex_new(al_session *session, const char *name, int max_attempts, al_probing probing);
void al_mutex_drop(al_mutex *mutex);

/* As al_semaphore_acquire(); AL_NOT_FOUND does not occur, and AL_DEADLOCK means that this very session holds it. */
al_op *al_mutex_acquire(al_mutex *mutex, const al_acquire_options *options);

/* ---- the readers–writer lock ----------------------------------------------------------------------------------- */

/* As al_mutex_new(). */
al_rwlock *al_rwlock_new(al_session *session, const char *name, int max_attempts, al_probing probing);
void al_rwlock_drop(al_rwlock *rwlock);

/* As al_mutex_acquire(). Readers are inside together, a writer is alone; once a writer waits no more readers are let in.
 * AL_DEADLOCK: this very session reads or writes it already. Writing also fails with AL_BLOCKED, and waits no longer, while
 * the broker reads no publishers, and with AL_CONFLICT where an alternate exchange hides who reads. */
al_op *al_rwlock_read(al_rwlock *rwlock, const al_acquire_options *options);
al_op *al_rwlock_write(al_rwlock *rwlock, const al_acquire_options *options);

/* Turns a write lock into a read lock, with no gap in which another writer fits; of a read lock nothing is changed. The lock
 * has then another ticket. Fails with AL_LOST, AL_NOT_HELD; with AL_UNREACHABLE, AL_REFUSED, AL_LIMIT, AL_NO_MEMORY, which
 * leave it what it was, or, if only the answer to the door's opening is missing, a read lock: al_lock_kind_of() tells. Only
 * for read and write locks. */
al_op *al_lock_downgrade(al_lock *lock);

/* ---- locks ------------------------------------------------------------------------------------------------------ */

typedef enum al_lock_kind {
  AL_LOCK_SLOT,
  AL_LOCK_MUTEX,
  AL_LOCK_PERMIT,
  AL_LOCK_READ,
  AL_LOCK_WRITE
} al_lock_kind;

/* What it is a lock of, none of which changes but the kind and the ticket, by al_lock_downgrade(). */
al_lock_kind al_lock_kind_of(const al_lock *lock);
int al_lock_slot(const al_lock *lock);           /* 0 unless it is AL_LOCK_SLOT */
const char *al_lock_name(const al_lock *lock);   /* the semaphore's, the mutex's, … */
const char *al_lock_ticket(const al_lock *lock); /* random, one for every claim */
double al_lock_acquired_at(const al_lock *lock); /* seconds since the epoch, by this machine's wall clock */

/* AL_OK: held, and the broker answered recently enough to be sure of it at `now`, by al_system_now(). Otherwise AL_SUSPECT,
 * AL_LOST, AL_NOT_HELD or AL_FORKED. No I/O: news that nobody has read off the connection yet is not known here. */
al_code al_lock_held(const al_lock *lock, int64_t now);
const char *al_lock_reason(const al_lock *lock); /* why it was lost; "" if it was not */

/* True once an administrator has asked for the lock back (al_admin_revoke), and from then on, whatever becomes of the
 * lock. Nothing else happens: it is held until it is let go. No I/O, as al_lock_held(). */
bool al_lock_revoked(const al_lock *lock);

/* "Verifying a Held Lock": B is still ours, A still exists; of a permit: its queue still exists, and no news of its loss
 * came before the broker's answer. An answer that comes so late that it proves nothing is asked for again, within another
 * timeout of the session. Fails with AL_LOST, AL_REMOVED (the lock stays held: let go of it), AL_NOT_HELD,
 * AL_UNREACHABLE, AL_LIMIT. */
al_op *al_lock_verify(al_lock *lock);

/* "Relinquishing a Lock", by deleting B and awaiting the answer. Fails with AL_NOT_HELD (so when done twice), AL_LOST,
 * AL_UNREACHABLE (not answered in time: it is released as soon as the broker reads it). A permit is given back without an
 * answer: the operation is done at once. NULL, no memory: it is released all the same, and nobody will say so. */
al_op *al_lock_release(al_lock *lock);

/* Gives the lock back. Still held: it is released, without waiting for the answer. */
void al_lock_drop(al_lock *lock);

/* ---- the persistent semaphore, for those who administer ("Lock Administration") -------------------------------- */

typedef struct al_admin_options {
  bool quorum;     /* A queues are quorum queues; otherwise classic */
  int overshoot;   /* strays deleted past the end, in this many slots */
  bool ascending;  /* delete from the lowest slot upwards ("Swiss Cheese Semaphores") */
  int64_t timeout; /* for the whole action, waiting for another administrator included */
  int64_t wait;    /* after a removal: how long to wait for the holders of the removed slots; 0: do not */
  bool revoke;     /* after a removal, and while waiting for holders: ask them to let go */
} al_admin_options;

/* classic, no overshoot, descending, 30 s, no wait, nobody asked to let go. */
void al_admin_options_init(al_admin_options *options);

/* Each takes the administration mutex, acts, and lets it go. al_op_count() is then the number of slots. Fails with
 * AL_TIMEOUT (another administrator, or the action took too long), AL_EXISTS (create), AL_NOT_FOUND (add, remove,
 * destroy, repair), AL_BUSY (repair: its bell is a quorum queue, which is replaced only while no slot is held and nobody
 * waits; the slots are in order), AL_CONFLICT, AL_SQUATTED, AL_REFUSED, AL_UNREACHABLE, AL_UNAVAILABLE (the queue in the
 * place of the mutex is on a node that is down), AL_LOST (the mutex), AL_LIMIT, AL_CLOSED.
 * A message about an action cut short names the count that al_admin_resize() finishes it with.
 *
 * With `revoke`, those that remove slots then ask the holders of these slots to let go: with `wait` again and again until
 * they have (AL_TIMEOUT), otherwise once. What fails from there on leaves the slots removed, and says so: also AL_BLOCKED
 * (without `wait`: an alarm, and somebody who holds was not asked), AL_UNAVAILABLE (without `wait`: a holder's queue
 * refuses the message), AL_REFUSED (no permission to publish). */
al_op *al_admin_create(al_session *session, const char *name, int slots, const al_admin_options *options);
al_op *al_admin_add(al_session *session, const char *name, int slots, const al_admin_options *options);
al_op *al_admin_remove(al_session *session, const char *name, int slots, const al_admin_options *options);
al_op *al_admin_resize(al_session *session, const char *name, int slots, const al_admin_options *options);
al_op *al_admin_destroy(al_session *session, const char *name, const al_admin_options *options);
al_op *al_admin_repair(al_session *session, const char *name, const al_admin_options *options);

/* Looks without the mutex. al_op_count() is the number of slots, 0 if there is no semaphore; AL_CONFLICT if one is
 * missing in the row (not for status, which shows it). */
al_op *al_admin_slots(al_session *session, const char *name, const al_admin_options *options);
al_op *al_admin_status(al_session *session, const char *name, const al_admin_options *options);

/* "Waiting on Lock Holders": done when none of the `count` slots is held. Copies `slots`. With `revoke`, every look asks
 * the holders to let go. */
al_op *al_admin_wait_released(al_session *session, const char *name, const int *slots, size_t count,
                              const al_admin_options *options);

/* Asks whoever holds the slot, 1 to AL_SLOTS_MAX, to let go: al_lock_revoked() is then true there. The slot need not exist,
 * as removed ones may be held. Without the mutex. `options->wait` 0: asks once; AL_NOT_HELD if there is nobody to ask,
 * AL_BLOCKED if somebody holds it and cannot be asked for an alarm, AL_UNAVAILABLE if the holder's queue refuses the
 * message. Otherwise asks again and again until the slot is not held; fails with AL_TIMEOUT when `wait`, which begins once
 * connected, is over. Whoever takes the slot meanwhile is asked as well. Under an alarm nobody is asked, but a slot that
 * comes free is seen. Also fails with AL_REFUSED (no permission to publish), AL_UNREACHABLE, AL_LIMIT, AL_CLOSED. */
al_op *al_admin_revoke(al_session *session, const char *name, int slot, const al_admin_options *options);

/* ---- the token semaphore, for those who administer -------------------------------------------------------------- */

typedef struct al_token_admin_options {
  bool quorum;     /* queues are created as quorum queues; otherwise classic */
  int64_t timeout; /* for the action, waiting for another administrator included */
  int64_t wait;    /* on top of that, for holders to give permits back; 0: what is free now must do */
} al_token_admin_options;

/* classic, 30 s, no wait. */
void al_token_admin_options_init(al_token_admin_options *options);

/* The permits of a semaphore: how many there are to be, and how many of them nobody has. The others are held, by clients,
 * by an administrator at work, or lost: AMQP does not tell which. */
typedef struct al_permits {
  size_t count, free, held;
} al_permits;

/* Each but al_token_admin_slots() takes the administration mutex, acts, and lets it go; al_op_count() is then the number
 * of permits. All fail with AL_TIMEOUT (another administrator, or the action took too long), AL_SQUATTED (a queue by one
 * of the names is another connection's own), AL_UNAVAILABLE (a queue's node is down, or the queue refuses messages),
 * AL_REFUSED, AL_UNREACHABLE, AL_LOST (the mutex, or what was collected), AL_LIMIT, AL_CLOSED; those that make permits
 * also with AL_BLOCKED (a memory or disk alarm), before they have changed anything unless it began just then. AL_CONFLICT:
 * the queue of permits was made by other software, nobody counts them; or more of them are free than there are to be.
 *
 * Whatever an action fails with, everything it had collected goes back, and there are never more permits than counted: at
 * most there are fewer. (In a cluster what docs/reliability.md says of permits excepted.) A message about an action cut
 * short names what finishes it. What throws permits away ends a tenth of a second later.
 *
 * Creates it. AL_EXISTS. */
al_op *al_token_admin_create(al_session *session, const char *name, int permits,
                             const al_token_admin_options *options);

/* Makes more permits. AL_NOT_FOUND. */
al_op *al_token_admin_add(al_session *session, const char *name, int permits,
                          const al_token_admin_options *options);

/* Takes permits away, before all who wait for one: all of them or none. Holders keep theirs. AL_NOT_FOUND; AL_BUSY (`wait`
 * 0) and AL_TIMEOUT if not enough came free. As many as there are or more: the semaphore itself goes, once nobody holds a
 * permit. */
al_op *al_token_admin_remove(al_session *session, const char *name, int permits,
                             const al_token_admin_options *options);

/* Creates, adds or removes. A queue made by other software becomes a semaphore of so many permits, once nobody else
 * consumes from it (AL_BUSY, AL_TIMEOUT); its messages are replaced. Who holds one of them by basic.get is not seen. */
al_op *al_token_admin_resize(al_session *session, const char *name, int permits,
                             const al_token_admin_options *options);

/* Deletes both queues. With `wait` it first takes every permit: AL_TIMEOUT, and nothing is deleted, if not all came back.
 * Without, those who hold one lose it. AL_NOT_FOUND. */
al_op *al_token_admin_destroy(al_session *session, const char *name, const al_token_admin_options *options);

/* Makes it as many permits as are counted: takes all that are free, throws away what is one too many (also of two with the
 * same id), and makes those that are missing, as soon as that is certain because nobody else consumes. Otherwise they may
 * be held: AL_BUSY (`wait` 0) or AL_TIMEOUT if they do not come back. Who holds one by basic.get is not seen, and is taken
 * for lost. AL_NOT_FOUND. */
al_op *al_token_admin_repair(al_session *session, const char *name, const al_token_admin_options *options);

/* Looks without the mutex, in one round trip: al_op_permits(). All 0 if there is no semaphore. */
al_op *al_token_admin_slots(al_session *session, const char *name, const al_token_admin_options *options);
al_permits al_op_permits(const al_op *op);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
