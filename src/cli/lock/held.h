/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The locks that are held while the command runs: one, or those of --all or --count. The command may run while all of
 * them are held. */
#ifndef CLI_LOCK_HELD_H
#define CLI_LOCK_HELD_H

#include "amqplocks.h"
#include "cli/common/broker.h"

#define CLI_HELD_MOST 64

typedef struct cli_held {
  al_lock *locks[CLI_HELD_MOST]; /* in the order in which they were acquired */
  int count;
  int64_t keep_until; /* --at-least, of al_system_now() */
  int64_t expires_at; /* --at-most; AL_NEVER */
  const cli_broker *broker;
} cli_held;

/* Returns the lock whose ticket the command's processes have in AMQP_LOCK_TICKET. */
const al_lock *cli_held_first(const cli_held *held);

/* Returns until when all of them are certain to be held. */
int64_t cli_held_certain_until(const cli_held *held);

/* Returns a lock that is not certain to be held, and why; NULL: there is none, `*code` is AL_OK. One that was lost comes
 * before one that may be. */
const al_lock *cli_held_trouble(const cli_held *held, int64_t now, al_code *code);

/* Returns a lock that an administrator has asked for, or NULL. */
const al_lock *cli_held_revoked(const cli_held *held);

/* Asks the broker whether they are held. Returns NULL, or a lock that is not: `*code` and `message` say why. */
const al_lock *cli_held_verify(al_session *session, const cli_held *held, al_code *code,
                               char message[AL_MESSAGE_SIZE]);

/* Releases them, the last one first, and waits for that. Returns AL_OK, or the code of the first release that failed, and
 * its message. */
al_code cli_held_release(al_session *session, cli_held *held, char message[AL_MESSAGE_SIZE]);

/* Gives them back, the last one first, without waiting. */
void cli_held_drop(cli_held *held);

#endif
