/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "cli/lock/wish.h"

#include <stdlib.h>
#include <string.h>

#include "cli/common/report.h"

#define KINDS "slot, mutex, permit, read, write or fast_mutex"

static al_lock_kind kind_of(const char *word) {
  int kind = al_kind_named(word);
  if (kind >= 0) return (al_lock_kind)kind;
  cli_usage_error("option --all: \"%s\" is no kind of lock; there are " KINDS, word);
}

static cli_wish read_one(char *text) {
  char why[AL_MESSAGE_SIZE], *colon = strchr(text, ':');
  if (!colon) cli_usage_error("option --all: \"%s\" is not KIND:NAME, with a KIND of " KINDS, text);
  *colon = '\0';
  cli_wish wish = {.name = colon + 1, .kind = kind_of(text)};
  if (!al_name_check(wish.name, strlen(wish.name), why)) cli_usage_error("option --all: %s", why);
  return wish;
}

static int compare(const void *a, const void *b) {
  const cli_wish *one = a, *other = b;
  char of_one[AL_NAME_SIZE], of_other[AL_NAME_SIZE];
  al_lock_order(one->kind, one->name, of_one);
  al_lock_order(other->kind, other->name, of_other);
  return strcmp(of_one, of_other);
}

int cli_wishes_read(char *list, cli_wish wishes[CLI_WISHES_MOST]) {
  int count = 0;
  for (char *next = list, *text; (text = strsep(&next, ","));) {
    if (count == CLI_WISHES_MOST) cli_usage_error("option --all takes at most %d locks", CLI_WISHES_MOST);
    wishes[count++] = read_one(text);
  }
  qsort(wishes, (size_t)count, sizeof *wishes, compare);
  for (int i = 1; i < count; i++) {
    const cli_wish *one = &wishes[i - 1], *other = &wishes[i];
    if (compare(one, other) == 0)
      cli_usage_error("option --all: %s:%s and %s:%s are one lock", al_kind_name(one->kind), one->name,
                      al_kind_name(other->kind), other->name);
  }
  return count;
}
