/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The kinds of locks: their names, in words, and the queues by which they are ordered (al_lock_order). */
#ifndef AL_CORE_BASE_KIND_H
#define AL_CORE_BASE_KIND_H

#include "amqplocks.h"

/* Returns `out`. */
const char *al_kind_words(char out[AL_LOCK_WORDS], al_lock_kind kind, int slot, const char *name);

#endif
