/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/admin/status.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/common/report.h"

static bool shows_each(const admin_options *options) {
  return options->verb->id == ADMIN_STATUS || options->verb->id == ADMIN_WATCH;
}

admin_status admin_status_of(const admin_options *options, const al_op *op) {
  admin_status status = {.count = al_op_count(op)};
  bool is_asking = shows_each(options) || options->verb->id == ADMIN_SLOTS;
  if (options->lock == ADMIN_PERMITS && is_asking) {
    status.permits = al_op_permits(op);
    status.count = status.permits.count;
    status.seen = status.permits.free + status.permits.held;
  } else if (shows_each(options)) {
    status.seen = al_op_seen(op);
  }
  return status;
}

/* ---- JSON ------------------------------------------------------------------------------------------------------- */

static json_t *slots_where(const admin_status *status, const al_op *op, bool (*fits)(al_slot)) {
  json_t *list = json_array();
  for (size_t i = 1; i <= status->seen; i++)
    if (fits(al_op_slot(op, i))) json_array_append_new(list, json_integer((json_int_t)i));
  return list;
}

static bool is_held(al_slot slot) { return slot.held; }
static bool is_missing(al_slot slot) { return !slot.exists; }

static char *json_text(const admin_options *options, const admin_status *status, const al_op *op) {
  bool is_permits = options->lock == ADMIN_PERMITS;
  json_t *object = json_object();
  json_object_set_new(object, "name", json_string(options->name));
  json_object_set_new(object, is_permits ? "permits" : "slots", json_integer((json_int_t)status->count));
  if (shows_each(options) && is_permits) {
    json_object_set_new(object, "free", json_integer((json_int_t)status->permits.free));
    json_object_set_new(object, "held", json_integer((json_int_t)status->permits.held));
  } else if (shows_each(options)) {
    json_object_set_new(object, "held", slots_where(status, op, is_held));
    json_object_set_new(object, "missing", slots_where(status, op, is_missing));
  }
  char *text = json_dumps(object, JSON_COMPACT);
  json_decref(object);
  if (!text) cli_fail_no_memory();
  return text;
}

/* ---- text ------------------------------------------------------------------------------------------------------- */

static void list_slots(FILE *out, const admin_status *status, const al_op *op, bool (*fits)(al_slot),
                       const char *what) {
  const char *between = what;
  for (size_t i = 1; i <= status->seen; i++) {
    if (!fits(al_op_slot(op, i))) continue;
    fprintf(out, "%s %zu", between, i);
    between = ",";
  }
}

static void describe(FILE *out, const admin_options *options, const admin_status *status, const al_op *op) {
  size_t held = 0, missing = 0;
  bool is_permits = options->lock == ADMIN_PERMITS;
  const char *one = is_permits ? "permit" : "slot";
  fprintf(out, "%s: %zu %s%s", options->name, status->count, one, status->count == 1 ? "" : "s");
  if (!shows_each(options)) return;
  for (size_t i = 1; i <= status->seen && !is_permits; i++) {
    held += al_op_slot(op, i).held;
    missing += !al_op_slot(op, i).exists;
  }
  if (is_permits) held = status->permits.held;
  fprintf(out, ", %zu held", held);
  if (is_permits) fprintf(out, ", %zu free", status->permits.free);
  if (is_permits) return;
  list_slots(out, status, op, is_held, ":");
  if (missing > 0) list_slots(out, status, op, is_missing, "; missing:");
}

char *admin_status_text(const admin_options *options, const admin_status *status, const al_op *op) {
  char *text = NULL;
  size_t size;
  if (options->json || options->json_output) return json_text(options, status, op);
  FILE *out = open_memstream(&text, &size);
  if (!out) cli_fail_no_memory();
  describe(out, options, status, op);
  if (fclose(out) != 0) cli_fail_no_memory();
  return text;
}

void admin_status_print(const admin_options *options, const admin_status *status, const al_op *op) {
  bool is_silent = options->verb->id == ADMIN_DESTROY || options->verb->id == ADMIN_REVOKE ||
                   options->verb->id == ADMIN_FORGET_FENCE;
  if (is_silent) return;
  if (options->verb->id == ADMIN_SLOTS && !options->json && !options->json_output) {
    printf("%zu\n", status->count);
    return;
  }
  char *text = admin_status_text(options, status, op);
  puts(text);
  free(text);
}
