/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/acquire/fencing.h"

#include <inttypes.h>

#include "core/base/backoff.h"
#include "core/session/fencer.h"
#include "core/session/session.h"

#define MADE_MOST 2

static int64_t seen(const al_fencing *fencing) {
  return al_fencer_seen(fencing->op->session->fencer, fencing->fence);
}

static void draw(al_fencing *fencing) {
  fencing->is_making = false;
  fencing->before = seen(fencing);
  al_draw_begin(&fencing->draw, fencing->op, fencing->fence);
  fencing->draw.until = al_earlier(fencing->draw.until, fencing->until);
}

void al_fencing_begin(al_fencing *fencing, al_op *op, const char *fence) {
  const al_session *session = op->session;
  int64_t until = al_deadline_after(session->now, 2 * session->settings.timeout);
  *fencing = (al_fencing){.op = op, .fence = fence, .until = until};
  draw(fencing);
}

static void make(al_fencing *fencing) {
  if (fencing->made++ == MADE_MOST) {
    al_op_fail(
        fencing->op, AL_CONFLICT,
        "\"%s\" was made, and is gone again: a policy may delete it (expires), or other software moves "
        "its message",
        fencing->fence);
    return;
  }
  fencing->is_making = true;
  al_fence_maker_begin(&fencing->maker, fencing->op, fencing->fence, seen(fencing),
                       fencing->draw.empty_since);
  fencing->maker.mends = fencing->mends;
  fencing->maker.until = al_earlier(fencing->maker.until, fencing->until);
}

/* A smaller number than before: the fence was made anew since. */
static bool has_fallen(const al_fencing *fencing) { return fencing->draw.number <= fencing->before; }

static int64_t drawn(al_fencing *fencing) {
  int64_t number = fencing->draw.number;
  if (has_fallen(fencing)) {
    al_op_fail(fencing->op, AL_CONFLICT,
               "the number %" PRId64 " was drawn from \"%s\" after %" PRId64
               ": the fence was made anew by a machine whose clock is behind; once that is right, "
               "forget_fence() makes another",
               number, fencing->fence, fencing->before);
    return 0;
  }
  al_fencer_see(fencing->op->session->fencer, fencing->fence, number);
  return number;
}

int64_t al_fencing_poll(al_fencing *fencing) {
  while (!fencing->op->done) {
    if (fencing->is_making) {
      if (!al_fence_maker_poll(&fencing->maker)) return 0;
      draw(fencing);
    }
    al_draw_state state = al_draw_poll(&fencing->draw);
    if (state == AL_DRAW_PENDING) return 0;
    if (state == AL_DRAW_DRAWN && !(fencing->mends && has_fallen(fencing))) return drawn(fencing);
    make(fencing);
  }
  return 0;
}

const char *al_fencing_why(const al_fencing *fencing) {
  return fencing->is_making ? fencing->maker.why : fencing->draw.why;
}

void al_fencing_cancel(al_fencing *fencing) {
  al_draw_cancel(&fencing->draw);
  al_fence_maker_cancel(&fencing->maker);
}
