/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The methods of AMQP: which are the broker's answers, and what a trace shows of each. A method that is not in the table
 * can be sent and received all the same (wire/channel.h). */
#ifndef AL_CORE_BASE_METHODS_H
#define AL_CORE_BASE_METHODS_H

#include <stdbool.h>
#include <stdio.h>

#include "core/base/amqp.h"

bool al_method_is_answer(amqp_method_number_t id);

/* Writes its name, such as queue.declare-ok, and the fields of the table. */
void al_method_print(const amqp_method_t *method, FILE *out);
/* Writes what of a message's properties matters. */
void al_properties_print(const amqp_basic_properties_t *properties, FILE *out);

#endif
