/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A gate: one exclusive queue that is there as long as somebody holds it, a mutex or the door of a readers–writer lock.
 * A look at it asks for the queue and, in the same round trip, for the bell that those who wait for it make. While a claim of
 * this very session is on its way out, the look waits for that: it is nobody's any more. */
#ifndef AL_CORE_GATE_H
#define AL_CORE_GATE_H

#include "core/acquire.h"

typedef struct al_gate {
  char queue[AL_NAME_SIZE];
  al_probes probes;
  bool is_asked;
} al_gate;

/* For an acquire's own functions; gate->queue is set. */
void al_gate_look(al_gate *gate, al_acquire *self);
al_sight al_gate_sight(al_gate *gate, al_acquire *self);

#endif
