/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Reduces the table of headers of a message to the few integers that this library reads: the counts of a quorum
 * queue, and the base of a fence. All else in the table was chosen by a publisher, and is not decoded by anybody. */
#ifndef AL_TRANSPORT_HEADERS_H
#define AL_TRANSPORT_HEADERS_H

#include <stddef.h>
#include <stdint.h>

/* Tables that are longer are discarded: ours never are. */
#define AL_HEADERS_MOST 1024

/* In place of a discarded table: the mark of a message that was published again. It may have had one. */
#define AL_HEADERS_DISCARDED 9
void al_headers_discard(uint8_t table[AL_HEADERS_DISCARDED]);

/* `table`: an AMQP table without its length, `length` bytes. Moves what is kept to its beginning, and returns how many
 * bytes that are. What follows the first entry that is malformed, or of a type that AMQP 0-9-1 does not have, is not
 * kept. */
size_t al_headers_keep(uint8_t *table, size_t length);

#endif
