/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The actions of an administrator on the number of slots of a semaphore, or of permits of a token semaphore. */
#ifndef AL_CORE_ADMIN_ACTION_H
#define AL_CORE_ADMIN_ACTION_H

#include "core/session/op.h"

typedef enum al_action { AL_CREATE, AL_ADD, AL_REMOVE, AL_RESIZE, AL_DESTROY, AL_REPAIR } al_action;

/* The name of the action in Lua, for messages. */
const char *al_action_verb(al_action action);

/* False: `amount` is out of range for this action, and the operation has failed with AL_LIMIT. (The Lua modules
 * check the number first and raise an error.) */
bool al_action_is_possible(al_action action, int amount, al_op *op);

/* The number of slots, or permits, after the action, when there are `count` before it. A repair results in
 * `whole`. */
int al_action_target(al_action action, int amount, int count, int whole);

/* True if the action creates a semaphore that does not exist yet. */
bool al_action_makes(al_action action);

#endif
