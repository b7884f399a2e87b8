/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * What an administrator can do to the number of slots, or of permits. */
#ifndef AL_CORE_ADMIN_ACTION_H
#define AL_CORE_ADMIN_ACTION_H

#include "core/session/op.h"

typedef enum al_action { AL_CREATE, AL_ADD, AL_REMOVE, AL_RESIZE, AL_DESTROY, AL_REPAIR } al_action;

/* For people: what Lua's callers call it. */
const char *al_action_verb(al_action action);

/* False: there can be no such number, and the operation has failed. (From Lua it never comes to that: there it throws.) */
bool al_action_is_possible(al_action action, int amount, al_op *op);

/* How many there are to be when there are `count`; a repair makes them `whole`. */
int al_action_target(al_action action, int amount, int count, int whole);

/* Whether it makes what is not there. */
bool al_action_makes(al_action action);

#endif
