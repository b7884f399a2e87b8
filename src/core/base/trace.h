/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * A trace gets a line for each frame, for each step of an operation, and for each decision that is not obvious from
 * these (docs/debugging.md). The transport makes it, and writes the lines to a file. Without one, each place costs one
 * branch. No line has a password: of a frame only the fields listed in methods.c are shown. */
#ifndef AL_CORE_BASE_TRACE_H
#define AL_CORE_BASE_TRACE_H

#include "amqplocks.h"
#include "core/base/amqp.h"

typedef struct al_trace al_trace;

struct al_trace {
  void (*say)(al_trace *, const char *format, ...) __attribute__((format(printf, 2, 3)));
  void (*end)(al_trace *);    /* frees it, when its session ends */
  char flaw[AL_MESSAGE_SIZE]; /* why it cannot be written: no operation of its session begins; "" */
};

/* `trace` NULL: nothing is traced. */
#define AL_TRACE(trace, ...) ((trace) ? (trace)->say(trace, __VA_ARGS__) : (void)0)

/* A frame on the connection of this role. `way`: ">" to the broker, "<" from it. Fields that are 0 or empty are left
 * out. */
void al_trace_frame(al_trace *trace, const char *role, const char *way, const amqp_frame_t *frame);

#endif
