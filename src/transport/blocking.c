/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Operations that the caller waits for. */
#include <stdio.h>

#include "amqplocks.h"

static al_code wait_until_done(al_session *session, al_op *op, char message[AL_MESSAGE_SIZE]) {
  if (!op) {
    if (message)
      snprintf(message, AL_MESSAGE_SIZE, "%s: the operation could not begin", al_code_name(AL_NO_MEMORY));
    return AL_NO_MEMORY;
  }
  while (!al_op_done(op)) al_native_wait(session, op);
  if (message) snprintf(message, AL_MESSAGE_SIZE, "%s", al_op_message(op));
  return al_op_code(op);
}

al_code al_op_wait(al_session *session, al_op *op, char message[AL_MESSAGE_SIZE]) {
  al_code code = wait_until_done(session, op, message);
  al_op_drop(op);
  return code;
}

al_lock *al_acquire_wait(al_session *session, al_op *op, al_code *code, char message[AL_MESSAGE_SIZE]) {
  al_code result = wait_until_done(session, op, message);
  al_lock *lock = op ? al_op_lock(op) : NULL;
  if (code) *code = result;
  al_op_drop(op);
  return lock;
}
