/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A set of message ids: which of our permits were seen already. Ours are 16 lower-case hexadecimal digits; what other
 * software may have written there names nothing to us. */
#ifndef AL_CORE_TOKENS_IDS_H
#define AL_CORE_TOKENS_IDS_H

#include "amqplocks.h"

typedef struct al_ids {
  uint64_t *slots; /* 0: free */
  size_t size;
} al_ids;

/* Empty, with room for `most`. False: no memory. */
bool al_ids_init(al_ids *ids, size_t most);

/* Remembers an id. False: it is remembered already. What is no id of ours is never. */
bool al_ids_add(al_ids *ids, const char *id);

void al_ids_free(al_ids *ids);

#endif
