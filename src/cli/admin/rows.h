/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * What a broker's tools list: queues, consumers and channels, as far as they tell of locks.
 *
 * The reader (json.h) fills a row and adds it. A row of a queue that is none of this library is
 * dropped. All texts of a row are UTF-8 without control characters, whatever the broker has. */
#ifndef CLI_ADMIN_ROWS_H
#define CLI_ADMIN_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "amqplocks.h"

typedef enum admin_kind { ADMIN_QUEUE, ADMIN_CONSUMER, ADMIN_CHANNEL, ADMIN_KINDS } admin_kind;

typedef struct admin_row {
  admin_kind kind;
  /* a queue, or the queue of a consumer */
  char *vhost, *queue;
  char lock[AL_NAME_SIZE]; /* the name of its lock */
  al_queue_part part;
  int slot;
  char *holder, *ticket; /* of a consumer: its tag */
  int64_t since;         /* seconds since the epoch; -1: not told */
  int64_t messages, ready, priority;
  int64_t
      retain; /* of a mutex's queue: seconds for which it may be kept while nobody holds the mutex; 0: never */
  char *connection, *user; /* of the holder or the waiter; the connection by its name, "ADDRESS -> ADDRESS" */
  char *channel;           /* of a consumer, and a channel's own: its name, or with rabbitmqctl its pid */
  int64_t unacked;         /* of a channel or a queue */
  int active;              /* of a consumer: 1 if the broker sends messages to it; -1: not told */
} admin_row;

typedef struct admin_rows {
  admin_row *list;
  size_t count, size;
  size_t unread;         /* rows that could not be read */
  bool is_ctl;           /* rabbitmqctl made the listings */
  bool has[ADMIN_KINDS]; /* a listing of that kind was read, even if it is empty */
} admin_rows;

/* A row without anything: texts are NULL, numbers -1, the priority 0. */
admin_row admin_row_new(admin_kind kind);

/* Sets a text of a row: a copy, in which control characters and what is no UTF-8 are replaced by "?". */
void admin_row_text(char **text, const char *bytes, size_t length);

/* An argument of a queue or a consumer; `text` is NULL if it is a number. Others than those of this library are ignored. */
void admin_row_argument(admin_row *row, const char *key, const char *text, size_t length, int64_t number);

/* Adds the row, whose texts are then the list's, or drops it. `queue` is the name of its queue as the broker has it; it is
 * not used for a channel. */
void admin_rows_add(admin_rows *rows, admin_row *row, const char *queue, size_t length);

void admin_rows_drop(admin_rows *rows);

#endif
