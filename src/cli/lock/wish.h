/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The locks that the command line names: NAME with its options, or the list of --all. */
#ifndef CLI_LOCK_WISH_H
#define CLI_LOCK_WISH_H

#include "amqplocks.h"

#define CLI_WISHES_MOST 16

typedef struct cli_wish {
  const char *name;
  al_lock_kind kind;
} cli_wish;

/* Reads "KIND:NAME,KIND:NAME…" and returns how many there are, in the order in which all clients take them
 * (al_lock_order). Ends the program with a message if something is wrong. Writes into `list`. */
int cli_wishes_read(char *list, cli_wish wishes[CLI_WISHES_MOST]);

#endif
