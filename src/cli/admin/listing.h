/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Who holds which lock, and who waits: made of the rows of all listings (rows.h).
 *
 *   a lock's exclusive queue            its holder; the connection is that of the queue's consumer
 *   a consumer of permits, or at a bell its channel tells which: with a message unacknowledged it holds the permit, or has
 *                                       the bell's token; without, it waits. A consumer with a token whose connection holds
 *                                       the lock is the holder's; another one was woken just now
 *   the same, but no channels listed    at a bell it waits, unless the lock has a holder of the same name; of permits it is
 *                                       not clear
 *   a consumer at a fast mutex          the active one holds it if it has the token, as its channel or the queue tells;
 *                                       where no consumer is told to be active, the one whose channel has the token
 *   the highest priority at a bell      the holder's own, not shown */
#ifndef CLI_ADMIN_LISTING_H
#define CLI_ADMIN_LISTING_H

#include "cli/admin/rows.h"

#define ADMIN_WAITS_FOR_READERS "writer, waits for readers"

typedef enum admin_state {
  ADMIN_SUMMARY, /* no holder: how many slots or permits are free */
  ADMIN_HOLDS,
  ADMIN_WAITS,
  ADMIN_WOKEN,
  ADMIN_UNCLEAR
} admin_state;

typedef struct admin_item {
  const admin_row *row; /* the queue or the consumer; its lock's name and virtual host */
  admin_state state;
  const char
      *kind; /* "slot", "mutex", "fast_mutex", "read", "write", "permit", "admin"; at a bell "rwlock" */
  char what[96];
  int64_t total, free; /* of a summary; -1: not known */
  size_t group;        /* index of the first item of its name */
  /* In a deadlock: where the session that holds what this one waits for waits itself. Otherwise NULL. */
  const struct admin_item *blocker;
} admin_item;

typedef struct admin_listing {
  admin_item *list;
  size_t count, size;
  const char *only; /* the name of the only lock that is shown; NULL: all are */
} admin_listing;

/* Sorts the rows, whose texts the listing uses. */
admin_listing admin_listing_make(admin_rows *rows, const char *only);

/* The item after `item` that is shown; of NULL the first one. NULL: there is none. */
const admin_item *admin_listing_next(const admin_listing *listing, const admin_item *item);

/* True if it waits for others, also behind the door that it has shut. */
bool admin_item_waits(const admin_item *item);

void admin_listing_drop(admin_listing *listing);

#endif
