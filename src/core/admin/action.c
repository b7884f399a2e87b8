/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/admin/action.h"

const char *al_action_verb(al_action action) {
  static const char *const verbs[] = {"create", "add", "remove", "resize", "destroy", "repair"};
  return verbs[action];
}

bool al_action_is_possible(al_action action, int amount, al_op *op) {
  int least = action == AL_RESIZE ? 0 : 1;
  if (action == AL_DESTROY || action == AL_REPAIR || (amount >= least && amount <= AL_SLOTS_MAX)) return true;
  al_op_fail(op, AL_LIMIT, "the number must be from %d to %d, not %d", least, AL_SLOTS_MAX, amount);
  return false;
}

int al_action_target(al_action action, int amount, int count, int whole) {
  switch (action) {
    case AL_ADD:
      return count + amount;
    case AL_REMOVE:
      return count > amount ? count - amount : 0;
    case AL_DESTROY:
      return 0;
    case AL_REPAIR:
      return whole;
    default:
      return amount;
  }
}

bool al_action_makes(al_action action) { return action == AL_CREATE || action == AL_RESIZE; }
