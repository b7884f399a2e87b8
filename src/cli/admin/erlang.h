/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Reads arguments as rabbitmqctl prints them, an Erlang list of pairs:
 *
 *     [{"x-queue-type","classic"},{"x-max-length",0},{"x-amqplocks-holder","press 4 \"in\" the ☃"}]
 *
 * A text is printed as "…", as a list of characters such as [119,9731] if there is one above 255 in it, or as <<"…">>. The
 * last term of a pair is its value; a type may stand between ({"x-max-length",long,0}). Any other term is skipped.
 *
 * The reader is a loop over the bytes, without recursion: what stands deeper than a pair's value is skipped by counting
 * brackets, however deep. */
#ifndef CLI_ADMIN_ERLANG_H
#define CLI_ADMIN_ERLANG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An argument. `text` is NULL if its value is a whole number. It is UTF-8 unless the broker's text was not. */
typedef void admin_take_argument(void *context, const char *key, const char *text, size_t length,
                                 int64_t number);

/* Calls `take` for each argument whose value is a text or a whole number. Returns false if `length` bytes at `terms` are no
 * such list; arguments before the place that is wrong were taken then. */
bool admin_erlang_read(const char *terms, size_t length, admin_take_argument *take, void *context);

#endif
