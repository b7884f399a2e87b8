/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/base/trace.h"

#include <stdio.h>

#include "core/base/methods.h"

static bool has_properties(const amqp_frame_t *frame) {
  return frame->frame_type == AMQP_FRAME_HEADER && frame->payload.properties.class_id == AMQP_BASIC_CLASS;
}

void al_trace_frame(al_trace *trace, const char *role, const char *way, const amqp_frame_t *frame) {
  char words[400] = "";
  FILE *out = fmemopen(words, sizeof words - 1, "w"); /* what does not fit is cut off */
  if (!out) return;
  if (frame->frame_type == AMQP_FRAME_METHOD)
    al_method_print(&frame->payload.method, out);
  else if (has_properties(frame))
    al_properties_print(frame->payload.properties.decoded, out);
  else
    fprintf(out, "%s", frame->frame_type == AMQP_FRAME_HEARTBEAT ? "heartbeat" : "content");
  fclose(out);
  trace->say(trace, "%s %d %s %s", role, frame->channel, way, words);
}
