/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/admin/listing.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common/report.h"

/* ---- orders ----------------------------------------------------------------------------------------------------- */

static int order_text(const char *one, const char *other) {
  return strcmp(one ? one : "", other ? other : "");
}

static int order_number(int64_t one, int64_t other) { return (one > other) - (one < other); }

static int order_lock(const admin_row *one, const admin_row *other) {
  int order = strcmp(one->vhost, other->vhost);
  return order ? order : strcmp(one->lock, other->lock);
}

/* A slot's queues stand together. */
static int rank(const admin_row *row) {
  return row->part == AL_QUEUE_SLOT_HELD ? AL_QUEUE_SLOT : (int)row->part;
}

/* By lock, then as they are shown. */
static int order_rows(const void *one, const void *other) {
  const admin_row *a = one, *b = other;
  int order = order_number(a->kind == ADMIN_CHANNEL, b->kind == ADMIN_CHANNEL);
  if (!order) order = order_lock(a, b);
  if (!order) order = order_number(a->kind, b->kind);
  if (!order) order = order_number(rank(a), rank(b));
  if (!order) order = order_number(a->slot, b->slot);
  if (!order) order = order_number(a->part, b->part);
  if (!order) order = order_number(b->active, a->active);
  if (!order) order = order_number(b->priority, a->priority);
  if (!order) order = order_number(a->since, b->since);
  return order ? order : order_text(a->ticket, b->ticket);
}

static int order_channels(const void *one, const void *other) {
  return order_text((*(const admin_row *const *)one)->channel, (*(const admin_row *const *)other)->channel);
}

static int order_queues(const void *one, const void *other) {
  const admin_row *a = *(const admin_row *const *)one, *b = *(const admin_row *const *)other;
  int order = strcmp(a->vhost, b->vhost);
  return order ? order : order_text(a->queue, b->queue);
}

static int order_holders(const void *one, const void *other) {
  return order_text((*(const admin_row *const *)one)->holder, (*(const admin_row *const *)other)->holder);
}

static int order_connections(const void *one, const void *other) {
  return order_text((*(const admin_row *const *)one)->connection,
                    (*(const admin_row *const *)other)->connection);
}

/* ---- indexes ---------------------------------------------------------------------------------------------------- */

typedef int admin_order(const void *, const void *);

/* Pointers to rows, in an order. */
typedef struct admin_index {
  const admin_row **list;
  size_t count;
  admin_order *order;
} admin_index;

static admin_index index_new(size_t most) {
  admin_index index = {.list = calloc(most + 1, sizeof *index.list)};
  if (!index.list) cli_fail_no_memory();
  return index;
}

static void index_sort(admin_index *index, admin_order *order) {
  index->order = order;
  qsort(index->list, index->count, sizeof *index->list, order);
}

static const admin_row *index_find(const admin_index *index, const admin_row *like) {
  const admin_row **found = bsearch(&like, index->list, index->count, sizeof *index->list, index->order);
  return found ? *found : NULL;
}

/* ---- one lock --------------------------------------------------------------------------------------------------- */

/* All rows of one name, which locks of every kind may share. */
typedef struct admin_group {
  admin_listing *listing;
  const admin_rows *rows;
  const admin_row *first, *end;
  const admin_index *channels, *consumers; /* of all locks */
  admin_index holders, owners;             /* the held queues of this lock, by holder and by connection */
  bool has_readers;
  size_t begin; /* index of its first item */
} admin_group;

static bool is_held(al_queue_part part) {
  return part == AL_QUEUE_SLOT_HELD || part == AL_QUEUE_MUTEX || part == AL_QUEUE_READER ||
         part == AL_QUEUE_WRITER || part == AL_QUEUE_ADMIN || part == AL_QUEUE_PERMITS_ADMIN;
}

static bool is_bell(al_queue_part part) {
  return part == AL_QUEUE_BELL || part == AL_QUEUE_MUTEX_BELL || part == AL_QUEUE_RW_BELL;
}

static admin_item *add(admin_group *group, const admin_row *row, admin_state state, const char *kind,
                       const char *what) {
  admin_listing *listing = group->listing;
  if (listing->count == listing->size) {
    size_t size = listing->size ? 2 * listing->size : 64;
    admin_item *list = reallocarray(listing->list, size, sizeof *list);
    if (!list) cli_fail_no_memory();
    listing->list = list;
    listing->size = size;
  }
  admin_item *item = &listing->list[listing->count++];
  *item =
      (admin_item){.row = row, .state = state, .kind = kind, .total = -1, .free = -1, .group = group->begin};
  snprintf(item->what, sizeof item->what, "%s", what);
  return item;
}

static const admin_row *channel_of(const admin_group *group, const admin_row *consumer) {
  return consumer && consumer->channel ? index_find(group->channels, consumer) : NULL;
}

/* ---- holders ---------------------------------------------------------------------------------------------------- */

/* The slot itself stands just before its holder. */
static bool is_removed(const admin_group *group, const admin_row *held) {
  const admin_row *slot = held - 1;
  return held == group->first || slot->kind != ADMIN_QUEUE || slot->part != AL_QUEUE_SLOT ||
         slot->slot != held->slot;
}

static void show_holder(admin_group *group, const admin_row *row) {
  char what[96];
  const char *kind = "admin";
  snprintf(what, sizeof what, "%s", "administrator");
  switch (row->part) {
    case AL_QUEUE_SLOT_HELD:
      kind = "slot";
      snprintf(what, sizeof what, "slot %d%s", row->slot, is_removed(group, row) ? " (removed)" : "");
      break;
    case AL_QUEUE_MUTEX:
      snprintf(what, sizeof what, "%s%s", kind = "mutex", row->retain > 0 ? ", held or retained" : "");
      break;
    case AL_QUEUE_READER:
      kind = "read";
      snprintf(what, sizeof what, "%s", "reader");
      break;
    case AL_QUEUE_WRITER:
      kind = "write";
      snprintf(what, sizeof what, "%s", group->has_readers ? ADMIN_WAITS_FOR_READERS : "writer");
      break;
    default:
      break;
  }
  add(group, row, ADMIN_HOLDS, kind, what);
}

/* ---- consumers -------------------------------------------------------------------------------------------------- */

/* True if the connection of this consumer holds the lock, or, where that is not known, a client of its name. */
static bool is_holders(const admin_group *group, const admin_row *consumer, const admin_row *channel) {
  admin_row like = *consumer;
  if (!channel) return consumer->holder && index_find(&group->holders, consumer);
  like.connection = channel->connection;
  return like.connection && index_find(&group->owners, &like);
}

static const char *kind_of_bell(al_queue_part bell) {
  return bell == AL_QUEUE_BELL ? "slot" : bell == AL_QUEUE_MUTEX_BELL ? "mutex" : "rwlock";
}

static void show_at_bell(admin_group *group, const admin_row *row) {
  const admin_row *channel = channel_of(group, row);
  bool has_token = channel && channel->unacked > 0;
  admin_state state = ADMIN_WAITS;
  if (row->priority == INT_MAX || (has_token && is_holders(group, row, channel))) return;
  if (has_token) state = ADMIN_WOKEN;
  if (!channel && is_holders(group, row, NULL)) state = ADMIN_UNCLEAR;
  add(group, row, state, kind_of_bell(row->part),
      state == ADMIN_WAITS   ? "waits"
      : state == ADMIN_WOKEN ? "waits, was woken"
                             : "waits or holds");
}

/* `ready`: permits lie ready, so nobody waits. */
static admin_state state_of_permit(const admin_group *group, const admin_row *row, bool ready) {
  const admin_row *channel = channel_of(group, row);
  return channel && channel->unacked >= 0 ? (channel->unacked > 0 ? ADMIN_HOLDS : ADMIN_WAITS)
         : ready                          ? ADMIN_HOLDS
                                          : ADMIN_UNCLEAR;
}

/* How many tokens of a fast mutex are with its active consumer; -1: not told. */
static int64_t tokens_out(const admin_row *queue) {
  if (!queue || queue->unacked >= 0) return queue ? queue->unacked : -1;
  return queue->messages >= 0 && queue->ready >= 0 ? queue->messages - queue->ready : -1;
}

/* Lists are made one after the other. A consumer that is not the active one in its list waits, also if it had the token
 * when the channels were listed: so a fast mutex never has two holders here. */
static admin_state state_at_fast_mutex(const admin_group *group, const admin_row *row, int64_t out) {
  const admin_row *channel = channel_of(group, row);
  int64_t tokens = channel ? channel->unacked : -1;
  bool is_active = row->active == 1;
  if (row->active == 0) return ADMIN_WAITS;
  if (tokens > 0 || (is_active && out > 0)) return ADMIN_HOLDS;
  return tokens == 0 || (is_active && out == 0) ? ADMIN_WAITS : ADMIN_UNCLEAR;
}

static void show_taker(admin_group *group, const admin_row *row, admin_state state) {
  static const char *const permit[] = {[ADMIN_HOLDS] = "permit",
                                       [ADMIN_WAITS] = "waits for a permit",
                                       [ADMIN_UNCLEAR] = "holds a permit or waits"};
  static const char *const fast_mutex[] = {[ADMIN_HOLDS] = "fast mutex",
                                           [ADMIN_WAITS] = "waits for the fast mutex",
                                           [ADMIN_UNCLEAR] = "holds the fast mutex or waits"};
  bool is_permit = row->part == AL_QUEUE_PERMITS;
  add(group, row, state, is_permit ? "permit" : "fast_mutex", (is_permit ? permit : fast_mutex)[state]);
}

/* Without a list of consumers the queue tells that the mutex is held, and not by whom. */
static void show_fast_mutex(admin_group *group, const admin_row *queue) {
  if (!group->rows->has[ADMIN_CONSUMER] && tokens_out(queue) > 0) show_taker(group, queue, ADMIN_HOLDS);
}

/* ---- how many are free ------------------------------------------------------------------------------------------ */

static void summarize_slots(admin_group *group) {
  int64_t total = 0, held = 0;
  const admin_row *first = NULL;
  char what[96];
  for (const admin_row *row = group->first; row < group->end && row->kind == ADMIN_QUEUE; row++) {
    if (row->part == AL_QUEUE_SLOT && !first) first = row;
    if (row->part == AL_QUEUE_SLOT) total++;
    if (row->part == AL_QUEUE_SLOT_HELD && !is_removed(group, row)) held++;
  }
  if (!first) return;
  snprintf(what, sizeof what, "%lld of %lld slots free", (long long)(total - held), (long long)total);
  admin_item *item = add(group, first, ADMIN_SUMMARY, "semaphore", what);
  item->total = total;
  item->free = total - held;
}

static const admin_row *find_queue(const admin_group *group, al_queue_part part) {
  for (const admin_row *row = group->first; row < group->end && row->kind == ADMIN_QUEUE; row++)
    if (row->part == part) return row;
  return NULL;
}

/* Permits that lie ready; -1: not told. */
static int64_t ready_permits(const admin_group *group, const admin_row *permits) {
  int64_t held = 0;
  if (!permits || permits->ready >= 0 || permits->messages < 0) return permits ? permits->ready : -1;
  if (!group->rows->has[ADMIN_CONSUMER] || !group->rows->has[ADMIN_CHANNEL]) return -1;
  for (const admin_row *row = group->first; row < group->end; row++) {
    const admin_row *channel =
        row->kind == ADMIN_CONSUMER && row->part == AL_QUEUE_PERMITS ? channel_of(group, row) : NULL;
    if (channel && channel->unacked > 0) held += channel->unacked;
  }
  return permits->messages > held ? permits->messages - held : 0;
}

static void summarize_permits(admin_group *group, int64_t ready) {
  const admin_row *marks = find_queue(group, AL_QUEUE_PERMITS_COUNT),
                  *permits = find_queue(group, AL_QUEUE_PERMITS);
  int64_t total = marks     ? marks->messages >= 0 ? marks->messages : marks->ready
                  : permits ? permits->messages
                            : -1;
  char what[96] = "permits", of[40] = "";
  if (!permits) return;
  if (total >= 0) snprintf(of, sizeof of, "%lld ", (long long)total);
  if (ready >= 0)
    snprintf(what, sizeof what, "%lld %s%spermits free", (long long)ready, total >= 0 ? "of " : "", of);
  else
    snprintf(what, sizeof what, "%spermits", of);
  admin_item *item = add(group, permits, ADMIN_SUMMARY, "token_semaphore", what);
  item->total = total;
  item->free = ready;
}

/* ---- the whole -------------------------------------------------------------------------------------------------- */

static void index_holders(admin_group *group) {
  size_t most = (size_t)(group->end - group->first);
  group->holders = index_new(most);
  group->owners = index_new(most);
  group->has_readers = false;
  for (const admin_row *row = group->first; row < group->end; row++) {
    if (row->kind != ADMIN_QUEUE || !is_held(row->part)) continue;
    if (row->holder) group->holders.list[group->holders.count++] = row;
    group->owners.list[group->owners.count++] = row;
    group->has_readers = group->has_readers || row->part == AL_QUEUE_READER;
  }
  index_sort(&group->holders, order_holders);
  index_sort(&group->owners, order_connections);
}

static void show_group(admin_group *group) {
  int64_t ready = ready_permits(group, find_queue(group, AL_QUEUE_PERMITS));
  int64_t out = tokens_out(find_queue(group, AL_QUEUE_FAST_MUTEX));
  group->begin = group->listing->count;
  index_holders(group);
  summarize_slots(group);
  summarize_permits(group, ready);
  for (const admin_row *row = group->first; row < group->end; row++) {
    if (row->kind == ADMIN_QUEUE && is_held(row->part)) show_holder(group, row);
    if (row->kind == ADMIN_QUEUE && row->part == AL_QUEUE_FAST_MUTEX) show_fast_mutex(group, row);
    if (row->kind == ADMIN_CONSUMER && row->part == AL_QUEUE_PERMITS)
      show_taker(group, row, state_of_permit(group, row, ready > 0));
    if (row->kind == ADMIN_CONSUMER && row->part == AL_QUEUE_FAST_MUTEX)
      show_taker(group, row, state_at_fast_mutex(group, row, out));
    if (row->kind == ADMIN_CONSUMER && is_bell(row->part)) show_at_bell(group, row);
  }
  free(group->holders.list);
  free(group->owners.list);
}

static void inherit(admin_row *row, const admin_row *from) {
  if (!from || from == row) return;
  if (from->connection && !row->connection)
    admin_row_text(&row->connection, from->connection, strlen(from->connection));
  if (from->user && !row->user) admin_row_text(&row->user, from->user, strlen(from->user));
}

/* The client of a consumer is told by its channel, that of an exclusive queue by the consumer of the queue. */
static void find_clients(admin_rows *rows, const admin_group *group) {
  for (size_t i = 0; i < rows->count; i++) {
    admin_row *row = &rows->list[i];
    bool is_owned = row->kind == ADMIN_QUEUE && is_held(row->part);
    const admin_row *consumer = is_owned                      ? index_find(group->consumers, row)
                                : row->kind == ADMIN_CONSUMER ? row
                                                              : NULL;
    inherit(row, consumer);
    inherit(row, channel_of(group, consumer));
  }
}

admin_listing admin_listing_make(admin_rows *rows, const char *only) {
  admin_listing listing = {.only = only};
  admin_index channels = index_new(rows->count), consumers = index_new(rows->count);
  admin_group group = {.listing = &listing, .rows = rows, .channels = &channels, .consumers = &consumers};
  if (rows->count > 0) qsort(rows->list, rows->count, sizeof *rows->list, order_rows);
  const admin_row *end = rows->list + rows->count;
  for (const admin_row *row = rows->list; row < end; row++) {
    if (row->kind == ADMIN_CHANNEL && row->channel) channels.list[channels.count++] = row;
    if (row->kind == ADMIN_CONSUMER && is_held(row->part)) consumers.list[consumers.count++] = row;
  }
  index_sort(&channels, order_channels);
  index_sort(&consumers, order_queues);
  find_clients(rows, &group);
  for (const admin_row *row = rows->list; row < end && row->kind != ADMIN_CHANNEL; row = group.end) {
    group.first = group.end = row;
    while (group.end < end && group.end->kind != ADMIN_CHANNEL && order_lock(row, group.end) == 0)
      group.end++;
    show_group(&group);
  }
  free(channels.list);
  free(consumers.list);
  return listing;
}

const admin_item *admin_listing_next(const admin_listing *listing, const admin_item *item) {
  for (item = item ? item + 1 : listing->list; item < listing->list + listing->count; item++)
    if (!listing->only || strcmp(listing->only, item->row->lock) == 0) return item;
  return NULL;
}

bool admin_item_waits(const admin_item *item) {
  bool is_at_door = strcmp(item->what, ADMIN_WAITS_FOR_READERS) == 0;
  return item->state == ADMIN_WAITS || item->state == ADMIN_WOKEN || is_at_door;
}

void admin_listing_drop(admin_listing *listing) {
  free(listing->list);
  *listing = (admin_listing){0};
}
