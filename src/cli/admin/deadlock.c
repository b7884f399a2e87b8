/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/admin/deadlock.h"

#include <stdlib.h>
#include <string.h>

#include "cli/common/report.h"

/* A session that holds, and waits. */
typedef struct admin_node {
  admin_item *waits;
  bool is_stuck;
  size_t walk; /* the last one that came here */
} admin_node;

typedef struct admin_graph {
  const admin_listing *listing;
  admin_node *list; /* by connection */
  size_t count;
} admin_graph;

static bool is(const char *one, const char *other) { return strcmp(one, other) == 0; }

static int order(const void *one, const void *other) {
  const admin_node *a = one, *b = other;
  return strcmp(a->waits->row->connection, b->waits->row->connection);
}

static admin_node *find(const admin_graph *graph, const admin_item *item) {
  admin_node like = {.waits = (admin_item *)item};
  return item->row->connection ? bsearch(&like, graph->list, graph->count, sizeof like, order) : NULL;
}

/* ---- what a session waits for ----------------------------------------------------------------------------------- */

/* The kind of holders for which it waits. */
static const char *wanted(const admin_item *waiter) {
  return is(waiter->kind, "rwlock") ? "write" : is(waiter->kind, "write") ? "read" : waiter->kind;
}

/* A slot or a permit lies ready. */
static bool is_free(const admin_item *item, const char *kind) {
  return item->state == ADMIN_SUMMARY && item->free > 0 &&
         ((is(kind, "slot") && is(item->kind, "semaphore")) ||
          (is(kind, "permit") && is(item->kind, "token_semaphore")));
}

/* The stuck session for which this one waits; NULL: it can go on. A writer needs all readers to go on; others need one
 * holder. */
static admin_node *blocker(const admin_graph *graph, const admin_node *node) {
  admin_node *found = NULL;
  const char *kind = wanted(node->waits);
  const admin_listing *listing = graph->listing;
  for (size_t i = node->waits->group; i < listing->count && listing->list[i].group == node->waits->group;
       i++) {
    const admin_item *item = &listing->list[i];
    if (is_free(item, kind)) return NULL;
    if (item->state != ADMIN_HOLDS || !is(item->kind, kind)) continue;
    admin_node *holder = find(graph, item);
    bool is_stuck = holder && holder->is_stuck;
    if (!is_stuck && !is(kind, "read")) return NULL;
    if (is_stuck && !found) found = holder;
  }
  return found;
}

/* ---- the graph -------------------------------------------------------------------------------------------------- */

/* Those that wait once. */
static void collect(admin_graph *graph) {
  size_t count = 0, same;
  for (size_t i = 0; i < graph->listing->count; i++) {
    admin_item *item = &graph->listing->list[i];
    if (admin_item_waits(item) && item->row->connection) graph->list[count++] = (admin_node){.waits = item};
  }
  qsort(graph->list, count, sizeof *graph->list, order);
  for (size_t i = 0; i < count; i += same) {
    for (same = 1; i + same < count && order(&graph->list[i], &graph->list[i + same]) == 0; same++) continue;
    if (same == 1) graph->list[graph->count++] = graph->list[i];
  }
}

/* All that hold are stuck, until it shows that one of them can go on. */
static void reduce(admin_graph *graph) {
  for (size_t i = 0; i < graph->listing->count; i++) {
    const admin_item *item = &graph->listing->list[i];
    admin_node *node = item->state == ADMIN_HOLDS ? find(graph, item) : NULL;
    if (node && node->waits != item) node->is_stuck = true;
  }
  for (bool changes = true; changes;) {
    changes = false;
    for (size_t i = 0; i < graph->count; i++) {
      admin_node *node = &graph->list[i];
      if (!node->is_stuck || blocker(graph, node)) continue;
      node->is_stuck = false;
      changes = true;
    }
  }
}

static void mark(const admin_graph *graph, admin_node *first) {
  admin_node *node = first;
  do {
    admin_node *next = blocker(graph, node);
    node->waits->blocker = next->waits;
    node = next;
  } while (node != first);
}

void admin_deadlocks_find(admin_listing *listing) {
  admin_graph graph = {.listing = listing, .list = calloc(listing->count + 1, sizeof *graph.list)};
  if (!graph.list) cli_fail_no_memory();
  collect(&graph);
  reduce(&graph);
  for (size_t i = 0; i < graph.count; i++) {
    admin_node *node = &graph.list[i];
    for (; node->is_stuck && !node->walk; node = blocker(&graph, node)) node->walk = i + 1;
    if (node->is_stuck && node->walk == i + 1) mark(&graph, node);
  }
  free(graph.list);
}
