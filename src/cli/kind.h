/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The kinds of locks, in words. */
#ifndef CLI_KIND_H
#define CLI_KIND_H

#include "amqplocks.h"

/* Writes what the lock is, such as: mutex "db". Returns `out`. */
const char *cli_lock_words(const al_lock *lock, char out[AL_NAME_SIZE + 64]);

/* Returns the name of a kind, as in AMQP_LOCK_KIND: "mutex", "fast_mutex", "slot", "permit", "read",
 * "write". */
const char *cli_kind_name(al_lock_kind kind);

#endif
