/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Distributed semaphores, mutexes and readers–writer locks held in RabbitMQ: the C interface.
 *
 * A session is two AMQP connections to one broker, and two more for fencing tokens. The holder is the connection on
 * which locks are held; nothing is ever published on it. The prober is opened when first needed; it asks whether queues
 * exist. The connection that draws fencing tokens is opened by the first fenced acquire, and closed when it was not
 * used for a minute. The one that makes a fence is closed when it is made.
 *
 * All communication with the broker is done by operations. One call begins an operation. al_native_wait() moves it
 * along. It is finished when al_op_done() returns true. al_op_drop() gives it back. al_op_drop() may be called before
 * the operation is finished: the operation is then abandoned, and what it had claimed is released in the background.
 *
 *     al_settings settings;
 *     al_settings_init(&settings);
 *     al_session *session = al_native_new(&settings);
 *     al_semaphore *images = al_semaphore_new(session, "images", NULL);
 *     al_op *op = al_semaphore_acquire(images, NULL);
 *     while (!al_op_done(op)) al_native_wait(session, op);
 *     al_lock *lock = al_op_lock(op);          // NULL: al_op_code(op), al_op_message(op) say why
 *
 * Failure. The comment of a function that begins an operation names the codes with which that operation may fail. Any
 * operation may also fail with AL_CLOSED, AL_FORKED and AL_NO_MEMORY. al_op_message() is for people.
 *
 * Waiting. Only al_native_wait() waits for the broker. The library calls no function of the program. Times are
 * nanoseconds of one clock, al_system_now(), which also counts while the system sleeps.
 *
 * Threads. Two threads must not call functions at the same time for one session, or for what was made from it
 * (semaphores, operations, locks). Several threads may share a session if the program locks a mutex of its own around
 * every such call. Different sessions share nothing, so a session for each thread needs no mutex. A session that
 * holds locks, or waits for one, has a thread of its own. That thread keeps the connections alive while the program
 * does other work. It blocks all signals, and ends with the session.
 *
 * Forks. A session cannot be used in a child of the process that made it. There operations fail with AL_FORKED, and
 * the child neither ends nor disturbs what its parent holds. In the child, a handler of pthread_atfork() replaces the
 * descriptors of all sessions by /dev/null. So when the parent is killed its locks are free at once, even if the
 * child goes on. The descriptors stay open as /dev/null. The child may close them, and open files of its own by their
 * numbers, which no session of the parent touches. Children of _Fork() and clone() keep copies of the descriptors. The
 * locks then stay held until these children end or close all descriptors from 3 on, or the broker misses the
 * heartbeats.
 *
 * Memory. A function that returns a pointer to something not const gives it to the caller. The caller returns it with
 * the _drop function of its type. NULL means that there is no memory. The _drop functions may be called in any order:
 * an object that is still needed by another one stays alive. Every _drop function accepts NULL, and none waits for
 * the broker. All other functions accept NULL only where their comment says so. Text that a function returns belongs
 * to the object that was passed in, and is valid as long as that object. Text that the program passes in is copied.
 *
 * Terms. A slot of a semaphore has two queues: A exists as long as the slot, and B exists while the slot is held. To
 * search is to ask the broker which slots are free. A doorbell is a queue of messages that each wake one waiter. A
 * lock is revoked when an administrator asks its holder to release it; the holder keeps it until it does.
 * Citations such as docs/specification.md, 2.3, name the section that tells what an algorithm does, and why. */
#ifndef AMQPLOCKS_H
#define AMQPLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef AL_HIDDEN /* the functions below are not exported from what is built with it */
#pragma GCC visibility push(hidden)
#else
#pragma GCC visibility push(default)
#endif

#define AL_VERSION "0.3.0" /* of this header */

/* Returns the version of the library that the program runs with, such as "0.3.0". */
const char *al_version(void);

#define AL_SECOND INT64_C(1000000000)
#define AL_MILLISECOND INT64_C(1000000)
#define AL_NEVER INT64_MAX

/* The sizes of text include the NUL at its end. */
#define AL_NAME_SIZE 256    /* a queue name: AMQP short strings hold 255 bytes */
#define AL_MESSAGE_SIZE 512 /* an error message */
#define AL_TICKET_SIZE 17   /* 64 bits in lower-case hexadecimal */
#define AL_SLOTS_MAX 65535  /* the largest slot number */
#define AL_HOSTS_MAX 64     /* the largest number of nodes in a session's list */

/* ---- results ---------------------------------------------------------------------------------------------------- */

/* The result of an operation. The names are stable and the same for every language: al_code_name(). */
typedef enum al_code {
  AL_OK,
  AL_TIMEOUT,     /* the time that the caller gave is over */
  AL_BUSY,        /* every slot is held */
  AL_CONTENDED,   /* other clients were faster, max_attempts times */
  AL_DEADLOCK,    /* every slot is held by this session itself */
  AL_NOT_FOUND,   /* the semaphore does not exist */
  AL_EXISTS,      /* the semaphore exists already */
  AL_LOST,        /* the lock is no longer held, and was not released by its holder */
  AL_SUSPECT,     /* the lock may be lost: the broker was silent for too long */
  AL_REMOVED,     /* an administrator has removed the slot */
  AL_NOT_HELD,    /* the lock was released before */
  AL_CLOSED,      /* the session was closed */
  AL_REFUSED,     /* the broker denies a permission */
  AL_AUTH,        /* wrong user or password */
  AL_VHOST,       /* the virtual host does not exist, or the user has no access to it */
  AL_UNREACHABLE, /* there is no broker, or it does not answer */
  AL_UNAVAILABLE, /* a queue exists but its node is down, or the queue refuses messages */
  AL_TLS,     /* no TLS with the broker: because of its certificate or ours, or the port does not speak TLS */
  AL_BLOCKED, /* the broker has a memory or disk alarm and does not read publishers */
  AL_CONFLICT,  /* a queue is in the way, a slot is missing in the row, or a broker of another cluster */
  AL_SQUATTED,  /* a queue has a name of ours, but not the kind that belongs to this name */
  AL_LIMIT,     /* a limit of channels, queues or connections is reached */
  AL_PHASE,     /* not allowed here: for event loops and OpenResty, never returned in C */
  AL_FORKED,    /* this process is a child of the one that opened the session */
  AL_PROTOCOL,  /* the peer does not speak AMQP, or broke it; or the settings cannot be used */
  AL_NO_MEMORY, /* this process has no memory left */
  AL_URL        /* the URL is malformed: only where URLs are read, by al_settings_url() and in Lua */
} al_code;

/* Returns the code's stable name, such as "not_found"; "ok" for AL_OK. Never NULL. */
const char *al_code_name(al_code code);

/* ---- settings --------------------------------------------------------------------------------------------------- */

typedef struct al_settings {
  char host[256];
  int port;
  bool tls;
  char user[256], vhost[256];
  /* It may be a token of OAuth 2. The frame that has it must not have more than 4096 bytes. */
  char password[3456];
  bool external; /* use SASL EXTERNAL: the client certificate tells the user; otherwise PLAIN */
  /* The broker's tools show it as the connection's name and as the holder of every lock. UTF-8. */
  char name[128];
  int heartbeat;   /* whole seconds, 1 to 65535 */
  int channel_max; /* channels wanted on a connection; the broker may allow fewer */
  int64_t timeout; /* nanoseconds; for every exchange with the broker, except waits for a slot */
  bool verify;     /* TLS: check the broker's certificate and its name */
  char ca[1024], cert[1024], key[1024]; /* TLS: PEM files; ca empty: the system's bundle */
  char server_name[256];                /* TLS: the name that the certificate must have; empty: host */
  char trace[256]; /* file to which a trace is appended; empty: the one of $AMQPLOCKS_TRACE, if that is set */
} al_settings;

/* Sets amqp://guest:guest@localhost:5672, heartbeat 10 s, timeout 5 s, at most 2047 channels, certificates
 * verified. */
void al_settings_init(al_settings *settings);

/* Reads a URL by RabbitMQ's URI specification into `settings`. A part that the URL does not have gets its default:
 * guest, guest, localhost, port 5672 (5671 with TLS), virtual host "/". A query parameter that the URL does not have
 * leaves its setting as it was. The query parameters are heartbeat, connection_timeout (in milliseconds),
 * channel_max, auth_mechanism, cacertfile, certfile, keyfile, verify and server_name_indication.
 *
 * Returns false if the URL is malformed; the code for this is always AL_URL. `why` then names the wrong part and how
 * to correct it, and never the password. `settings` is then undefined. */
bool al_settings_url(al_settings *settings, const char *url, char why[AL_MESSAGE_SIZE]);

/* The same for a URL that may name several hosts: amqp://user:password@a,b:5673,c/vhost. A query parameter that the
 * URL does not have leaves the setting as it was in settings[0]. settings[0] to settings[n - 1] then differ only in
 * host and port. `size` is the room in `settings`, at least 1. Returns n. Returns 0 where al_settings_url() returns
 * false, and if there is not enough room. */
size_t al_settings_urls(al_settings *settings, size_t size, const char *url, char why[AL_MESSAGE_SIZE]);

/* Returns true if the broker can accept `name`, which must be UTF-8 without control characters, and `vhost`, which
 * must be UTF-8. Otherwise returns false, and `why` says what is wrong. Connecting with such settings fails with
 * AL_PROTOCOL. */
bool al_settings_check(const al_settings *settings, char why[AL_MESSAGE_SIZE]);

/* ---- sessions --------------------------------------------------------------------------------------------------- */

/* The types of all objects. They are opaque: the program has pointers only. */
typedef struct al_session al_session;     /* two connections to one broker, and all that is done on them */
typedef struct al_semaphore al_semaphore; /* a persistent semaphore, as seen by a session */
typedef struct al_token_semaphore al_token_semaphore; /* a token semaphore, as seen by a session */
typedef struct al_mutex al_mutex;                     /* a mutex, as seen by a session */
typedef struct al_fast_mutex al_fast_mutex;           /* a fast mutex, as seen by a session */
typedef struct al_rwlock al_rwlock;                   /* a readers–writer lock, as seen by a session */
typedef struct al_lock al_lock; /* a lock that was acquired: a slot, a mutex, a permit, ... */
typedef struct al_op al_op;     /* an operation: something that is done with the broker */

/* Returns the current time: CLOCK_BOOTTIME, in nanoseconds. */
int64_t al_system_now(void);

/* Makes a session over rabbitmq-c's sockets, with a copy of `settings`. Returns NULL if there is no memory.
 *
 * Nothing is opened yet: every operation opens the connections it needs. It also opens them again when they were
 * lost, at once if they had lasted. Otherwise it does so after a pause, which grows from 50 ms to 5 s while
 * connecting fails; an operation waits for that within its own deadline. Locks from before stay lost. */
al_session *al_native_new(const al_settings *settings);

/* The same for `count` nodes of one cluster, 1 ≤ count ≤ AL_HOSTS_MAX. An attempt to connect tries the nodes one
 * after another, in the given order, until one accepts the connection. Each node has `timeout` ÷ `count` for that.
 * A node whose name has several addresses divides its time among them, and each of them is tried like a node.
 * The attempt ends early with AL_AUTH, AL_VHOST and AL_TLS. It also ends early with AL_CONFLICT: the broker belongs
 * to another cluster than the one of the connection before (by its server property cluster_name). Every later attempt
 * begins with the next node. The virtual host, the name and the timeout are settings[0]'s. A program that wants a
 * random order shuffles the settings itself. Returns NULL if there is no memory, or for any other `count`. */
al_session *al_native_new_list(const al_settings *settings, size_t count);

/* For credentials or nodes that change. True if the next al_native_wait() opens a connection; the program then reads
 * its settings again and calls al_native_renew(). */
bool al_native_connects(al_session *session);

/* The nodes, as for al_native_new_list(), and so the credentials, for the connections that the next al_native_wait()
 * opens, and later ones. Connections that are open stay open, and an attempt that has begun goes on with its nodes. The
 * name and the timeout stay those of the session. A broker of another cluster will be refused (AL_CONFLICT). Changes
 * nothing and returns AL_VHOST if the virtual host is another one, AL_LIMIT for a wrong `count`, or AL_FORKED. After
 * AL_NO_MEMORY one connection may have the new nodes already. */
al_code al_native_renew(al_session *session, const al_settings *settings, size_t count);

/* Moves the session along until `op`, which must be its own, is done. Returns earlier when a signal arrives or about
 * a second has passed. May wait for the broker. Opening a connection waits at most `settings.timeout`, plus the time
 * of the system's resolver. */
void al_native_wait(al_session *session, al_op *op);

/* As al_native_wait(), but also returns when `fd` is readable, is at its end or is no open descriptor, and when `until`
 * (of al_system_now()) has come. `fd` -1: none. `until` AL_NEVER: no limit. Returns true if `fd` is readable, at its
 * end, or not open. Reads nothing from `fd`.
 *
 * `op` NULL: only moves the session along. The call then also returns when a lock was lost or revoked since such a call
 * before. (al_session_alerts() need not be called for that.)
 *
 * A signal ends the wait if it arrives during the wait. For a signal that may arrive just before, pass a descriptor
 * that becomes readable by it: of signalfd(), or a pipe that the handler writes to. While a connection is being
 * opened, neither `fd` nor `until` is noticed; al_native_wait() tells how long that may take. In a child of the
 * process that made the session, `op` fails with AL_FORKED, and the call returns at once. */
bool al_native_wait_fd(al_session *session, al_op *op, int fd, int64_t until);

/* Wait until the operation is done, and give it back by al_op_drop(). A signal does not end the wait. `op` NULL is
 * AL_NO_MEMORY. `message` gets al_op_message(); NULL: it is not wanted.
 *
 * al_op_wait() returns al_op_code(). Locks that the operation acquired are released.
 *
 * al_acquire_wait() is for acquires of one lock. It returns al_op_lock(). NULL: `*code` says why (AL_OK if the operation
 * is none that acquires). `code`
 * may be NULL. */
al_code al_op_wait(al_session *session, al_op *op, char message[AL_MESSAGE_SIZE]);
al_lock *al_acquire_wait(al_session *session, al_op *op, al_code *code, char message[AL_MESSAGE_SIZE]);

/* The child that the next fork() of this process makes keeps the connections of this session open, until it ends, calls
 * one of the exec functions or closes the descriptors. It can do nothing else with them. So the locks of the session
 * stay held when the parent is killed, until the child ends or the broker misses the heartbeats. Only for a child that
 * does not fork. */
void al_native_keep_in_child(al_session *session);

/* Moves the session along without waiting: reads what has arrived, writes as much as can be written, keeps the
 * heartbeats. While the session retains a mutex, calls within a millisecond of another one do nothing. From its first
 * claim on, or its first wait for another client, a session has a thread that does this while the program does other
 * work. al_native_wait() starts that thread. */
void al_native_touch(al_session *session);

/* For event loops. Returns how often so far a lock needed its owner's attention: it was lost, or it was revoked. The
 * number does not grow by what the owner itself does, such as releasing and closing. The call makes the descriptor of
 * al_native_pollfd() not readable any more. Returns 0 in a child of the process that made the session. */
uint64_t al_session_alerts(al_session *session);

/* News for people, to be written to a log: connections opened and lost, locks lost or asked back, alarms of the broker.
 * A failure that an operation tells is not told by a note as well. */
typedef struct al_note {
  bool is_warning;         /* false: it is information */
  al_code code;            /* of a failure; AL_OK: information, or a warning that has no code */
  int64_t at;              /* when it was noticed, of al_system_now() */
  char name[AL_NAME_SIZE]; /* the lock that it is about; "": none */
  char text[AL_MESSAGE_SIZE];
} al_note;

/* Copies the oldest note to `note` and removes it from the session. Returns false if there is none. A session keeps
 * the latest sixteen notes. */
bool al_session_news(al_session *session, al_note *note);

/* Returns a descriptor for poll() and similar calls. It is readable while there are alerts that al_session_alerts()
 * has not returned yet; the program must do nothing else with it. The call starts the session's thread if the session
 * needs one and it could not be started before. The session owns the descriptor, and closes it with itself. Returns
 * -1 if the session was closed, this is a child of the process that made it, or no descriptor is left. */
int al_native_pollfd(al_session *session);

/* Returns in how many nanoseconds al_native_touch() should be called next. AL_NEVER while the session's thread does
 * that, or while the session holds no locks; less if no thread could be started. */
int64_t al_native_timeout(al_session *session);

/* Begins to connect the holder. It is not required, as every operation opens what it needs; with it, wrong
 * credentials are found at once. Fails with AL_AUTH, AL_VHOST, AL_UNREACHABLE, AL_TLS, AL_PROTOCOL, AL_LIMIT,
 * AL_CONFLICT. */
al_op *al_session_open(al_session *session);

/* Begins to close the session: releases every lock, closes both connections, and waits for the broker's answers, at
 * most for `settings.timeout`; and before that up to 20 s for the token of a quorum mutex whose last holder may not know
 * that it has lost it. The session is closed in any case. Later operations fail with AL_CLOSED. */
al_op *al_session_close(al_session *session);

/* Returns the name of the broker's cluster, as the first broker that this session connected to told it; "" before that,
 * and if the broker tells none. */
const char *al_session_cluster(const al_session *session);

/* What has become of the acquires and locks of a session since it was made. An acquire of several is one acquire that
 * fails, or several locks. */
typedef struct al_stats {
  uint64_t held;      /* locks that are held now */
  uint64_t waiting;   /* acquires that wait for other holders now */
  uint64_t acquired;  /* locks; each of them is held, or was released or lost */
  uint64_t lost;      /* locks that were lost before their release */
  uint64_t revoked;   /* locks that an administrator has asked for */
  uint64_t contended; /* claims that another client was faster with */
  uint64_t probes;    /* messages published: questions whether a queue exists, and tokens */
  uint64_t opened_holder, opened_prober; /* connections */
  int64_t
      silence; /* nanoseconds since the broker was last heard on a connection that holds locks; -1: there is none */
  bool blocked;                    /* the broker has an alarm, and reads no publishers */
  uint64_t failed[32];             /* acquires, by al_code; also those that were abandoned (AL_CLOSED) */
  bool is_up_holder, is_up_prober; /* the connection is open */
  bool is_up_quorum;               /* the same, of the connection for locks of quorum queues */
  uint64_t opened_quorum;
  uint64_t retained; /* locks, of those acquired, that the broker was not asked for: see al_lock_options */
} al_stats;

/* Fills in the first `size` bytes of `stats`: pass sizeof(al_stats). Members that later versions add come last. Does no
 * I/O. The sessions of one prober, as in nginx, share `probes` and `opened_prober`. All is 0 in a child of the process
 * that made the session. */
void al_session_stats(al_session *session, al_stats *stats, size_t size);

/* Closes both connections at once, without a message to the broker. The broker releases what they held. The locks are
 * AL_LOST: al_lock_verify() and similar operations fail with that. Other operations fail with AL_CLOSED. */
void al_session_abort(al_session *session);

/* Gives the session back; closes it as al_session_abort() does. Its memory stays alive while operations, locks or
 * semaphores refer to it. */
void al_session_drop(al_session *session);

/* ---- operations ------------------------------------------------------------------------------------------------- */

/* Returns true if the operation has ended: it has succeeded or failed. */
bool al_op_done(const al_op *op);

/* Returns AL_OK, or why the operation failed. Call it only when the operation is done. */
al_code al_op_code(const al_op *op);

/* Returns "code: what, to what, and what to do", and never a password; "" if the operation did not fail. Call it only
 * when the operation is done. */
const char *al_op_message(const al_op *op);

/* Returns how long the operation has been waiting for another client to release, in nanoseconds. `reason` then tells
 * what the last search has found, such as "3 of 3 held". Returns -1 if the operation does not wait. */
int64_t al_op_waiting(const al_op *op, char reason[AL_MESSAGE_SIZE]);

/* Returns the lock that an acquire got, once; after that, or if there is none, returns NULL. Of an acquire of several,
 * each call returns another one, and NULL after the last. The lock was certain to
 * be held when the operation was done. A program that fetches it later must first call al_lock_held(), and
 * al_lock_verify() if that returns AL_SUSPECT. */
al_lock *al_op_lock(al_op *op);

/* Returns the number of slots or permits, for operations of administration; otherwise 0. */
size_t al_op_count(const al_op *op);

/* Slots as al_admin_status() saw them, from 1 to al_op_seen(op). Any other slot is returned as neither existing nor
 * held. */
typedef struct al_slot {
  bool exists, held;
} al_slot;
size_t al_op_seen(const al_op *op);
al_slot al_op_slot(const al_op *op, size_t slot);

/* Gives the operation back, and abandons it first if it is not done. A lock that was not fetched by al_op_lock() is
 * released. */
void al_op_drop(al_op *op);

/* ---- the persistent semaphore, for those who lock (docs/specification.md, 2) ------------------------------------ */

/* The order in which slots are searched. */
typedef enum al_strategy {
  AL_ASCENDING, /* from slot 1 upwards; as in docs/specification.md, 2.3 */
  AL_RANDOM,    /* from a random slot */
  AL_LAST       /* from a slot that this session held before */
} al_strategy;

/* How to ask whether queues exist. */
typedef enum al_probing {
  AL_PROBE_AUTO,    /* by publishing; passively while the broker is blocked or denies publishing */
  AL_PROBE_PUBLISH, /* by mandatory publishes with confirms */
  AL_PROBE_PASSIVE  /* by passive declares */
} al_probing;

typedef struct al_semaphore_options {
  al_strategy strategy;
  int max_attempts; /* races lost at the last step before a search counts as busy; 0: 8 */
  al_probing probing;
  bool silent; /* the semaphore was made by other software and has no doorbell: do not ask for one */
  int most; /* do not use slots above this one; 0: use all. 1 makes a mutex of it, however many slots there are */
  bool fenced; /* each lock has a fencing token; see al_lock_fence() */
} al_semaphore_options;

/* Returns true if `name` is allowed as the name of a lock. Otherwise `why` says what is wrong. All functions below
 * require names that pass, and do not check them again. */
bool al_name_check(const char *name, size_t length, char why[AL_MESSAGE_SIZE]);

/* What a queue of the broker is to this library. docs/protocol.md has the names. */
typedef enum al_queue_part {
  AL_QUEUE_OTHER,         /* no queue of this library */
  AL_QUEUE_SLOT,          /* a slot's queue A */
  AL_QUEUE_SLOT_HELD,     /* a slot's queue B: the exclusive queue of its holder */
  AL_QUEUE_BELL,          /* a semaphore's doorbell */
  AL_QUEUE_ADMIN,         /* a semaphore's administration mutex: the exclusive queue of an administrator */
  AL_QUEUE_MUTEX,         /* the exclusive queue of a mutex's holder */
  AL_QUEUE_MUTEX_BELL,    /* a mutex's doorbell */
  AL_QUEUE_READER,        /* the exclusive queue of a reader */
  AL_QUEUE_WRITER,        /* the door: the exclusive queue of a writer that writes, or waits for readers */
  AL_QUEUE_RW_BELL,       /* the doorbell of a readers–writer lock */
  AL_QUEUE_PERMITS,       /* the free permits of a token semaphore, as messages */
  AL_QUEUE_PERMITS_COUNT, /* one message for each permit that should exist */
  AL_QUEUE_PERMITS_ADMIN, /* a token semaphore's administration mutex: the exclusive queue of an administrator */
  AL_QUEUE_FENCE,         /* the fence of a semaphore, from which fencing tokens are drawn */
  AL_QUEUE_MUTEX_FENCE, /* the fence of a mutex */
  AL_QUEUE_RW_FENCE,    /* the fence of a readers–writer lock */
  AL_QUEUE_FENCE_MAKER, /* the exclusive queue of a client that makes a fence, or the mark of an unfinished one */
  AL_QUEUE_BOLT,        /* a second queue beside an exclusive queue, before RabbitMQ 4.3 */
  AL_QUEUE_SCRATCH,     /* an exclusive queue that is deleted at once */
  AL_QUEUE_FAST_MUTEX, /* the queue of a fast mutex, held or not */
  AL_QUEUE_MANY,       /* the exclusive queue of a client that takes several slots or permits at once */
  AL_QUEUE_MANY_BELL,  /* the doorbell at which others wait to do so */
  AL_QUEUE_SEAL        /* beside the queue of a mutex: the last lock did not end by a release, or is held */
} al_queue_part;

/* Reads the name of a queue, and returns what the queue is. `name` gets the name of its lock, "" for AL_QUEUE_OTHER.
 * `*slot` gets the number of the slot for AL_QUEUE_SLOT, AL_QUEUE_SLOT_HELD and the bolt of such a queue, otherwise 0;
 * `slot` may be NULL. Only the name is read: a queue of another program may have such a name as well. */
al_queue_part al_queue_parse(const char *queue, char name[AL_NAME_SIZE], int *slot);

/* Makes a semaphore as seen by this session. Sends nothing to the broker. `options` NULL: ascending, 8 attempts,
 * auto, not silent, all slots, not fenced. The semaphore may be dropped while operations on it are under way. */
al_semaphore *al_semaphore_new(al_session *session, const char *name, const al_semaphore_options *options);
void al_semaphore_drop(al_semaphore *semaphore);

typedef struct al_acquire_options {
  /* How long to wait for a slot, in nanoseconds; 0: search once; AL_NEVER: wait for ever. An acquire that fails is done
   * when the broker has confirmed that what it took is free, or after the session's timeout; at the latest a second
   * after this time, unless it is 0, or after a silence of the broker. */
  int64_t timeout;
  bool fair;    /* queue behind all clients that wait already; otherwise take any free slot that is found */
  int priority; /* waiters with a higher priority are served first */
  /* AL_UNREACHABLE, AL_UNAVAILABLE and AL_BLOCKED do not end the acquire: it begins again, after pauses that grow from
   * 50 ms to 5 s, until `timeout` has passed. Without effect if `timeout` is 0. */
  bool patient;
  int64_t
      poll; /* interval of a waiter's rechecks (own repeated searches), in nanoseconds, in case it is not notified */
  /* Of a semaphore or a token semaphore: acquire so many slots or permits, at most AL_SLOTS_MAX, or none. 0 means 1.
   * al_op_lock() then returns one lock after the other. Other kinds of locks ignore it. Such an acquire also fails with
   * AL_LIMIT (there are fewer), and with AL_DEADLOCK (this session holds one of them already). Clients that take several
   * do so one after the other; clients that take one go on meanwhile. */
  int count;
  /* So many nanoseconds after the acquire the session releases the lock, also if its holder hangs (in an event loop, if
   * the loop runs). It is then lost, and al_lock_reason() begins with "expired". 0: never. */
  int64_t at_most;
  /* Of a mutex: asks its holder to release it, as al_mutex_revoke() does; the holder decides (al_lock_revoked()). A waiter
   * asks again at every second look, as another client may hold it by then. Other kinds of locks ignore it. */
  bool revoke;
  /* Of a mutex, a fast mutex or a quorum mutex, in nanoseconds; 0: none. If the last lock that was acquired with this
   * option did not end by a release (its connection ended, or it was lost), this acquire keeps the mutex for so long
   * before it ends: its holder may not know yet. With `timeout` 0 it fails then (AL_BUSY). From the end of that lock on
   * it is the time that its holder gave, or this one from the acquire on, whichever is over first. Other kinds of locks
   * ignore it. docs/specification.md, 1.7. */
  int64_t settle;
} al_acquire_options;

/* Sets: wait for ever, not fair, priority 0, not patient, poll 5 s, one, not limited in time, nothing to settle. */
void al_acquire_options_init(al_acquire_options *options);

/* docs/specification.md, 2.3. `options` NULL: as al_acquire_options_init() sets them. al_op_lock() returns the lock.
 * Fails with AL_TIMEOUT, AL_BUSY (timeout 0), AL_CONTENDED (timeout 0), AL_DEADLOCK, AL_NOT_FOUND, AL_REFUSED,
 * AL_UNREACHABLE, AL_UNAVAILABLE, AL_BLOCKED, AL_SQUATTED, AL_LIMIT, AL_CLOSED. However it fails, nothing stays
 * claimed. */
al_op *al_semaphore_acquire(al_semaphore *semaphore, const al_acquire_options *options);

/* ---- the token semaphore, for those who lock -------------------------------------------------------------------- */

typedef struct al_token_semaphore_options {
  /* The queue of permits is a quorum queue. Then a client that holds a permit asks for a consumer timeout of ten years,
   * if the broker lets consumers ask for one (from 4.3). The session holds permits of quorum queues on a connection
   * of their own: a quorum queue that has lost its majority ends the connection of a client that takes a permit. */
  bool quorum;
  /* The same, for callers that cannot do without a fencing token (al_lock_fence()): an acquire that gets a permit
   * without one gives it back, and fails with AL_CONFLICT. Implies `quorum`. */
  bool fenced;
} al_token_semaphore_options;

/* Makes a token semaphore as seen by this session. Its permits are messages in a queue. Sends nothing to the broker.
 * `options` NULL: a classic queue. */
al_token_semaphore *al_token_semaphore_new(al_session *session, const char *name,
                                           const al_token_semaphore_options *options);
void al_token_semaphore_drop(al_token_semaphore *semaphore);

/* Takes a permit: any message of the queue. `options` NULL: as al_acquire_options_init() sets them. `fair` and
 * `poll` have no effect: waiters are always served in order, by priority, and make no rechecks. Fails with
 * AL_TIMEOUT, AL_BUSY (timeout 0), AL_NOT_FOUND (also if the queue is deleted while the operation waits),
 * AL_REFUSED, AL_UNREACHABLE, AL_UNAVAILABLE, AL_SQUATTED, AL_CONFLICT (`options.quorum` is true, and the queue is
 * not a quorum queue), AL_LIMIT, AL_CLOSED. However it fails, no permit stays taken, and no message is consumed. */
al_op *al_token_semaphore_acquire(al_token_semaphore *semaphore, const al_acquire_options *options);

/* ---- the mutex ------------------------------------------------------------------------------------------------- */

/* For mutexes and readers–writer locks. */
typedef struct al_lock_options {
  int max_attempts; /* races lost at the last step before a search counts as busy; 0: 8 */
  al_probing probing;
  bool fenced; /* each lock has a fencing token; see al_lock_fence() */
  /* Of a mutex: for so many nanoseconds after the broker was asked for it, the session may keep it beyond a release, unless
   * another client asks. Until then the session's next acquire of that name sends nothing. At most 16 mutexes are kept.
   * 0: not at all. A fenced mutex is never kept. */
  int64_t retain;
} al_lock_options;

/* Makes a mutex as seen by this session. Sends nothing to the broker. A mutex exists while it is held, and needs not
 * be created. (For a mutex that an administrator creates, destroys and revokes, use a semaphore of one slot.)
 * `options` NULL: 8 attempts, auto, not fenced. */
al_mutex *al_mutex_new(al_session *session, const char *name, const al_lock_options *options);
void al_mutex_drop(al_mutex *mutex);

/* As al_semaphore_acquire(), but it does not fail with AL_NOT_FOUND. AL_DEADLOCK: this session itself holds the
 * mutex. */
al_op *al_mutex_acquire(al_mutex *mutex, const al_acquire_options *options);

/* Deletes the fence of a mutex, the queue that fencing tokens are drawn from. The next fenced acquire makes another.
 * Its numbers begin with the time in microseconds: they are larger than those before if the clocks of the machines that
 * acquire agree. If they do not, a resource refuses the new holders until time has caught up. So delete a fence only
 * when its name is not used any more, or when its message is lost (AL_CONFLICT). Fails with AL_REFUSED, AL_SQUATTED,
 * AL_UNREACHABLE, AL_UNAVAILABLE, and the codes of al_session_open(). */
al_op *al_mutex_forget_fence(al_session *session, const char *name);

/* ---- the fast mutex -------------------------------------------------------------------------------------------- */

/* Makes a fast mutex as seen by this session. Sends nothing to the broker. A fast mutex and a plain mutex of one name do
 * not exclude one another: all clients of a name must use one of the two kinds. A fast mutex has no fencing tokens; the
 * permit of a token semaphore of one permit has, with `quorum`. docs/guarantees.md tells what it promises less than the
 * plain mutex. */
al_fast_mutex *al_fast_mutex_new(al_session *session, const char *name);
void al_fast_mutex_drop(al_fast_mutex *mutex);

/* The same with a quorum queue: a fast mutex that stays exclusive when the cluster is partitioned, or a node fails.
 * It needs RabbitMQ 4.3 (AL_CONFLICT before). The queue stays for ever. Waiters have no priority. While it is held,
 * the queue is asked each 2.5 seconds, and the lock is lost when it has not answered for 14.5 seconds. All clients of
 * a name must use quorum queues, or none: others fail with AL_CONFLICT. */
al_fast_mutex *al_quorum_mutex_new(al_session *session, const char *name);

/* Waiters are served by priority, and then in the order of their arrival, so `fair` has no effect. `options` NULL: as
 * al_acquire_options_init() sets them. The first client makes the queue, which needs the permission to configure, and
 * publishes one message to it; the broker deletes the queue ten minutes after its last use. Fails with AL_TIMEOUT,
 * AL_BUSY (timeout 0), AL_DEADLOCK (this session itself holds the mutex), AL_CONFLICT (the queue has this name and
 * another shape; or it was not in use, and the plain mutex of this name is held), AL_REFUSED, AL_UNREACHABLE,
 * AL_UNAVAILABLE (the queue's node is down), AL_BLOCKED (it was not in use, and the broker reads no publishers),
 * AL_SQUATTED, AL_LIMIT. However it fails, nothing stays claimed. */
al_op *al_fast_mutex_acquire(al_fast_mutex *mutex, const al_acquire_options *options);

/* ---- the readers–writer lock ----------------------------------------------------------------------------------- */

/* As al_mutex_new(). */
al_rwlock *al_rwlock_new(al_session *session, const char *name, const al_lock_options *options);
void al_rwlock_drop(al_rwlock *rwlock);

/* As al_mutex_acquire(). Several readers may hold the lock together. A writer holds it alone. While a writer waits,
 * no more readers are admitted. AL_DEADLOCK: this session itself reads or writes already. al_rwlock_write() also
 * fails with AL_BLOCKED, and stops waiting, while the broker reads no publishers. It fails with AL_CONFLICT where an
 * alternate exchange hides the readers. */
al_op *al_rwlock_read(al_rwlock *rwlock, const al_acquire_options *options);
al_op *al_rwlock_write(al_rwlock *rwlock, const al_acquire_options *options);

/* As al_mutex_forget_fence(). */
al_op *al_rwlock_forget_fence(al_session *session, const char *name);

/* Turns a write lock into a read lock, with no gap in which another writer could enter. The lock then has another
 * ticket, and nobody has asked for it back yet. A read lock is not changed. `lock` must be a read or a write lock.
 * Fails with AL_LOST and AL_NOT_HELD. It may also fail with AL_UNREACHABLE, AL_REFUSED, AL_LIMIT or AL_NO_MEMORY.
 * Then the lock is still a write lock; or it is a read lock, if only the answer to the deletion of the writer's
 * queue (the door) is missing. al_lock_kind_of() tells which. */
al_op *al_lock_downgrade(al_lock *lock);

/* ---- locks ------------------------------------------------------------------------------------------------------ */

typedef enum al_lock_kind {
  AL_LOCK_SLOT,
  AL_LOCK_MUTEX,
  AL_LOCK_PERMIT,
  AL_LOCK_READ,
  AL_LOCK_WRITE,
  AL_LOCK_FAST_MUTEX
} al_lock_kind;

/* Returns "slot", "mutex", "permit", "read", "write" or "fast_mutex"; NULL: there is no such kind. */
const char *al_kind_name(int kind);
/* Returns the kind of this name; -1: there is no such kind. */
int al_kind_named(const char *name);

/* For programs that hold several locks at once. Two programs never wait for each other if both take their locks in the
 * same order. amqp-lock and the Lua module take them in the order of (al_session_cluster(), the virtual host, this text),
 * byte by byte, and take nothing if two of their locks have all of these in common. `out` gets the name of a queue of the
 * lock. It is the same for readers and writers, and for a semaphore and the persistent mutex of its name. */
void al_lock_order(al_lock_kind kind, const char *name, char out[AL_NAME_SIZE]);

/* Properties of a lock. They never change, except the kind, the ticket and the time by al_lock_downgrade(). */
al_lock_kind al_lock_kind_of(const al_lock *lock);
/* Writes what it is, such as: slot 3 of "db". Returns `out`. */
#define AL_LOCK_WORDS (AL_NAME_SIZE + 32)
const char *al_lock_words(const al_lock *lock, char out[AL_LOCK_WORDS]);
int al_lock_slot(const al_lock *lock);           /* 0 unless the kind is AL_LOCK_SLOT */
const char *al_lock_name(const al_lock *lock);   /* the name of the semaphore, the mutex, ... */
const char *al_lock_ticket(const al_lock *lock); /* random, another one for every claim */
double al_lock_acquired_at(const al_lock *lock); /* seconds since the epoch, by this machine's wall clock */

/* The lock's fencing token: a number from 1 to 2^53 - 1, larger than that of every earlier holder of the same
 * mutex, or of the same slot. A readers–writer lock's is larger than that of every earlier writer, and a reader's
 * is, too. It is there from the moment the lock is there, and never changes. 0: the lock was not acquired with
 * `fenced`.
 *
 * A permit of a token semaphore with `quorum` has a token without the option, and without a further request:
 * al_lock_permit() says with which other tokens it may be compared. 0: the permit was made by other software,
 * or published again, or its queue is not a quorum queue. (`fenced` of al_token_semaphore_options makes that
 * a failure.)
 *
 * Where no token can be had, an acquire with `fenced` of any other lock fails, and nothing stays claimed: with
 * AL_UNAVAILABLE (the fence, from which tokens are drawn, gives no answer within twice the session's timeout),
 * AL_CONFLICT (its message was removed, the token is not larger than one that this session has seen, or the tokens
 * are used up), AL_BLOCKED (an alarm, and there is no fence yet), AL_SQUATTED (the queue of its name is no fence),
 * AL_REFUSED, and the codes of al_session_open().
 *
 * A program passes it with each write, and the resource refuses numbers smaller than the largest that it has seen. So
 * a holder that was stopped, and does not know that its lock was lost, overwrites nothing. All clients of a name must
 * use `fenced`, or none. docs/guarantees.md has what the order of the numbers rests on. */
int64_t al_lock_fence(const al_lock *lock);

/* Of a permit with a fencing token: the id of the permit, 16 lower-case hexadecimal digits. Otherwise "". The token is
 * larger than those of all earlier holders of the permit with this id. Tokens of different permits that were made
 * together have no order. A permit that is made later, by al_token_admin_repair() or for a new semaphore of the name,
 * has another id; its tokens are larger than all that were given before, if the clocks of the administrators' machines
 * agree. So a resource of a semaphore of one permit compares the tokens alone. */
const char *al_lock_permit(const al_lock *lock);

/* Returns AL_OK if the lock is held, and the broker's last answer is recent enough to be sure of that at `now` (of
 * al_system_now()). Otherwise returns AL_SUSPECT, AL_LOST, AL_NOT_HELD or AL_FORKED. Does no I/O: what has not been
 * read from the connection yet is not known here. */
al_code al_lock_held(const al_lock *lock, int64_t now);
/* Returns until when al_lock_held() returns AL_OK if no more answer of the broker arrives, by al_system_now()'s
 * clock. A time in the past: AL_SUSPECT. 0: the lock is not held any more. Does no I/O. */
int64_t al_lock_certain_until(const al_lock *lock);

const char *al_lock_reason(const al_lock *lock); /* why the lock was lost; "" if it was not */

/* Returns true from the moment when an administrator has asked for the lock back (al_admin_revoke), also after the
 * lock was released or lost. Nothing else happens by the request: the lock is held until its holder releases it. Does
 * no I/O, as al_lock_held(). */
bool al_lock_revoked(const al_lock *lock);

/* docs/specification.md, 2.4. Asks the broker whether the lock is still held: queue B is still ours, and queue A still
 * exists. Of a permit: its queue still exists, and no notice of its loss came before the broker's answer. If an
 * answer comes so late that it proves nothing, the broker is asked again, within another timeout of the session.
 * Fails with AL_LOST, AL_REMOVED (the lock is still held, and should be released), AL_NOT_HELD, AL_UNREACHABLE,
 * AL_LIMIT. */
al_op *al_lock_verify(al_lock *lock);

/* docs/specification.md, 2.5. Deletes queue B and waits for the answer. Fails with AL_NOT_HELD (also if it is called
 * twice), AL_LOST, AL_UNREACHABLE (no answer in time: the lock is released as soon as the broker reads the request).
 * A fast mutex, or a permit of a classic queue, is given back without an answer: the operation is done at once. Returns
 * NULL if there is no memory; the lock is released all the same, but there is no operation to tell when. */
al_op *al_lock_release(al_lock *lock);

/* Gives the lock back. If it is still held, it is released, without waiting for the answer. */
void al_lock_drop(al_lock *lock);

/* ---- the persistent semaphore, for those who administer (docs/specification.md, 8) ------------------------------ */

typedef struct al_admin_options {
  bool quorum;     /* the queues A are created as quorum queues; otherwise as classic queues */
  int overshoot;   /* delete strays (slots behind a gap in the row) in this many places past the last slot */
  bool ascending;  /* delete from the lowest slot upwards (docs/specification.md, 8.3) */
  int64_t timeout; /* nanoseconds; for the whole action, waiting for another administrator included */
  int64_t wait; /* nanoseconds; after a removal, to wait for holders of the removed slots; 0: do not wait */
  bool revoke;  /* after a removal, and while waiting for holders: ask the holders to release */
  bool fenced;  /* create, resize and repair: first see that the fence is there, and works */
} al_admin_options;

/* Sets: classic, no overshoot, descending, timeout 30 s, no wait, no revoke, not fenced. */
void al_admin_options_init(al_admin_options *options);

/* Each of these acquires the administration mutex, acts, and releases the mutex. al_op_count() is then the number of
 * slots.
 *
 * All fail with AL_TIMEOUT (another administrator is at work, or the action took too long), AL_CONFLICT, AL_SQUATTED,
 * AL_REFUSED, AL_UNREACHABLE, AL_UNAVAILABLE (the queue in the place of the mutex is on a node that is down), AL_LOST
 * (the mutex), AL_LIMIT, AL_CLOSED. In addition:
 *   create                         AL_EXISTS
 *   add, remove, destroy, repair   AL_NOT_FOUND
 *   repair                         AL_BUSY: the doorbell is a quorum queue, which is replaced only while no slot is
 *                                  held and nobody waits; the slots are in order
 *
 * If an action was cut short, its message names the count with which al_admin_resize() completes it.
 *
 * With `fenced`, create, resize and repair first draw a fencing token, and make the fence (al_lock_fence()) if there is
 * none. Clients of the semaphore then need no permission to make it. A repair also makes anew a fence that is damaged,
 * or has lost its message; its numbers go on upwards, as the comment of al_mutex_forget_fence() says. Without a token
 * the action fails, with the codes of al_lock_fence(), and has changed nothing else.
 *
 * With `revoke`, those that remove slots then ask the holders of these slots to release: once, or with `wait` again
 * and again until all have released (AL_TIMEOUT). If this part fails, the slots stay removed, and the message says
 * so. It may also fail with AL_REFUSED (no permission to publish); without `wait` also with AL_BLOCKED (because of an
 * alarm a holder was not asked) and AL_UNAVAILABLE (a holder's queue refuses the message). */
al_op *al_admin_create(al_session *session, const char *name, int slots, const al_admin_options *options);
al_op *al_admin_add(al_session *session, const char *name, int slots, const al_admin_options *options);
al_op *al_admin_remove(al_session *session, const char *name, int slots, const al_admin_options *options);
al_op *al_admin_resize(al_session *session, const char *name, int slots, const al_admin_options *options);
al_op *al_admin_destroy(al_session *session, const char *name, const al_admin_options *options);
al_op *al_admin_repair(al_session *session, const char *name, const al_admin_options *options);

/* As al_mutex_forget_fence(), for a semaphore. al_admin_destroy() keeps the fence: a semaphore of this name that is
 * created later goes on with larger numbers. */
al_op *al_admin_forget_fence(al_session *session, const char *name);

/* Count the slots without the mutex. al_op_count() is the number of slots, 0 if there is no semaphore.
 * al_admin_slots() fails with AL_CONFLICT if a slot is missing in the row. al_admin_status() does not: al_op_slot()
 * shows each slot. */
al_op *al_admin_slots(al_session *session, const char *name, const al_admin_options *options);
al_op *al_admin_status(al_session *session, const char *name, const al_admin_options *options);

/* docs/specification.md, 8.5. The operation is done when none of the `count` slots is held. `slots` is copied. With
 * `revoke`, the holders are asked to release at every check. */
al_op *al_admin_wait_released(al_session *session, const char *name, const int *slots, size_t count,
                              const al_admin_options *options);

/* Asks the holder of a slot, 1 to AL_SLOTS_MAX, to release: the holder's al_lock_revoked() is then true. Needs no
 * mutex. The slot need not exist, because a removed slot may still be held.
 *
 * `options->wait` 0: asks once. Fails with AL_NOT_HELD if there is no holder, with AL_BLOCKED if there is a holder
 * that cannot be asked because of an alarm, and with AL_UNAVAILABLE if the holder's queue refuses the message.
 *
 * `options->wait` not 0: asks again and again until the slot is not held. A client that takes the slot meanwhile is
 * asked, too. Fails with AL_TIMEOUT when `wait`, which begins once connected, is over. During an alarm no holder is
 * asked, but a slot that becomes free is noticed.
 *
 * Both also fail with AL_REFUSED (no permission to publish), AL_UNREACHABLE, AL_LIMIT, AL_CLOSED. */
al_op *al_admin_revoke(al_session *session, const char *name, int slot, const al_admin_options *options);

/* As al_admin_revoke(), for the holder of a mutex, all readers of a readers–writer lock, and its writer. A writer
 * that waits for readers to leave is asked as well: its al_lock_revoked() is true as soon as it writes. With
 * `options->wait`, al_rwlock_revoke_readers() is done when nobody reads. It also fails with AL_BLOCKED where `wait`
 * is not 0, and with AL_CONFLICT where an alternate exchange hides the readers. */
al_op *al_mutex_revoke(al_session *session, const char *name, const al_admin_options *options);
al_op *al_rwlock_revoke_readers(al_session *session, const char *name, const al_admin_options *options);
al_op *al_rwlock_revoke_writer(al_session *session, const char *name, const al_admin_options *options);

/* ---- the token semaphore, for those who administer -------------------------------------------------------------- */

typedef struct al_token_admin_options {
  bool quorum;     /* queues are created as quorum queues; otherwise as classic queues. A repair: they are */
  int64_t timeout; /* nanoseconds; for the action, waiting for another administrator included */
  int64_t wait;    /* nanoseconds; in addition, for holders to give permits back; 0: use what is free now */
} al_token_admin_options;

/* Sets: classic, timeout 30 s, no wait. */
void al_token_admin_options_init(al_token_admin_options *options);

/* The permits of a semaphore: how many there should be, how many are free, and how many are held. A permit that is
 * not free is held by a client or by an administrator at work, or is lost: AMQP does not tell which. */
typedef struct al_permits {
  size_t count, free, held;
} al_permits;

/* Each of these but al_token_admin_slots() acquires the administration mutex, acts, and releases the mutex.
 * al_op_count() is then the number of permits.
 *
 * All fail with AL_TIMEOUT (another administrator is at work, or the action took too long), AL_SQUATTED (a queue with
 * one of the names is another connection's own), AL_CONFLICT (the permits are not counted: other software made their
 * queue, or their count is lost or does not answer; or more permits are free than there should be), AL_UNAVAILABLE (a
 * queue's node is down, or the queue refuses messages), AL_REFUSED, AL_UNREACHABLE, AL_LOST (the mutex, or permits that
 * were collected), AL_LIMIT, AL_CLOSED. Those that make permits also fail with AL_BLOCKED (a memory or disk alarm).
 * They have then changed nothing, unless the alarm began during the action.
 *
 * However an action fails, all permits that it had collected go back. There are never more permits than counted;
 * there may be fewer. (Exception: what docs/reliability.md says of permits in a cluster.) If an action was cut short,
 * its message names what completes it. An action that discards permits ends a tenth of a second later. */

/* Creates a semaphore. Also fails with AL_EXISTS. */
al_op *al_token_admin_create(al_session *session, const char *name, int permits,
                             const al_token_admin_options *options);

/* Makes more permits. Also fails with AL_NOT_FOUND. */
al_op *al_token_admin_add(al_session *session, const char *name, int permits,
                          const al_token_admin_options *options);

/* Removes permits: all of them or none. It takes free permits before all clients that wait for one. Holders keep
 * their permits. If `permits` is the number that exists or more, the semaphore itself is deleted, once no permit is
 * held. Also fails with AL_NOT_FOUND, and, if not enough permits became free, with AL_BUSY (`wait` 0) or
 * AL_TIMEOUT. */
al_op *al_token_admin_remove(al_session *session, const char *name, int permits,
                             const al_token_admin_options *options);

/* Creates the semaphore, or adds or removes permits. A queue made by other software becomes a semaphore of `permits`
 * permits, once nobody else consumes from it (otherwise AL_BUSY or AL_TIMEOUT); its messages are replaced. A client
 * that holds one of them by basic.get is not noticed. */
al_op *al_token_admin_resize(al_session *session, const char *name, int permits,
                             const al_token_admin_options *options);

/* Deletes both queues. With `wait` it first collects every permit; if not all came back, it fails with AL_TIMEOUT,
 * and nothing is deleted. Without `wait`, holders lose their permits. Also fails with AL_NOT_FOUND. */
al_op *al_token_admin_destroy(al_session *session, const char *name, const al_token_admin_options *options);

/* Makes the number of permits equal to the count. It collects all free permits, and discards those that are too many,
 * also one of two with the same id. It makes the missing ones as soon as it is certain that they are missing, because
 * nobody else consumes. While somebody does, they may be held: it then fails with AL_BUSY (`wait` 0), or with
 * AL_TIMEOUT if they do not come back. A permit that a client holds by basic.get is not noticed, and counts as lost.
 * With `quorum`, each permit's next fencing tokens are larger than all before, by this machine's clock, though other
 * software has published its message again. Also fails with AL_NOT_FOUND. */
al_op *al_token_admin_repair(al_session *session, const char *name, const al_token_admin_options *options);

/* Reads the numbers without the mutex, in one round trip; al_op_permits() returns them. All are 0 if there is no
 * semaphore. */
al_op *al_token_admin_slots(al_session *session, const char *name, const al_token_admin_options *options);
al_permits al_op_permits(const al_op *op);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
