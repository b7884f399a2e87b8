/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/acquire/fence_token.h"

#include <inttypes.h>

#include "core/base/backoff.h"
#include "core/session/fence_links.h"
#include "core/session/session.h"

#define MADE_MOST 2

static int64_t seen(const al_fence_token *token) {
  return al_fence_links_seen(token->op->session->fence_links, token->fence);
}

static void draw(al_fence_token *token) {
  token->is_making = false;
  token->before = seen(token);
  al_fence_draw_begin(&token->draw, token->op, token->fence);
  token->draw.until = al_earlier(token->draw.until, token->until);
}

void al_fence_token_begin(al_fence_token *token, al_op *op, const char *fence) {
  const al_session *session = op->session;
  int64_t until = al_deadline_after(session->now, 2 * session->settings.timeout);
  *token = (al_fence_token){.op = op, .fence = fence, .until = until};
  draw(token);
}

static void make(al_fence_token *token) {
  if (token->made++ == MADE_MOST) {
    al_op_fail(
        token->op, AL_CONFLICT,
        "\"%s\" was made, and is gone again: a policy may delete it (expires), or other software moves "
        "its message",
        token->fence);
    return;
  }
  token->is_making = true;
  al_fence_maker_begin(&token->maker, token->op, token->fence, seen(token), token->draw.empty_since);
  token->maker.mends = token->mends;
  token->maker.until = al_earlier(token->maker.until, token->until);
}

/* A smaller number than before: the fence was made anew since. */
static bool has_fallen(const al_fence_token *token) { return token->draw.number <= token->before; }

static int64_t drawn(al_fence_token *token) {
  int64_t number = token->draw.number;
  if (has_fallen(token)) {
    al_op_fail(token->op, AL_CONFLICT,
               "the number %" PRId64 " was drawn from \"%s\" after %" PRId64
               ": the fence was made anew by a machine whose clock is behind; once that is right, "
               "forget_fence() makes another",
               number, token->fence, token->before);
    return 0;
  }
  al_fence_links_see(token->op->session->fence_links, token->fence, number);
  return number;
}

int64_t al_fence_token_poll(al_fence_token *token) {
  while (!token->op->done) {
    if (token->is_making) {
      if (!al_fence_maker_poll(&token->maker)) return 0;
      draw(token);
    }
    al_fence_draw_state state = al_fence_draw_poll(&token->draw);
    if (state == AL_DRAW_PENDING) return 0;
    if (state == AL_DRAW_DRAWN && !(token->mends && has_fallen(token))) return drawn(token);
    make(token);
  }
  return 0;
}

const char *al_fence_token_why(const al_fence_token *token) {
  return token->is_making ? token->maker.why : token->draw.why;
}

void al_fence_token_cancel(al_fence_token *token) {
  al_fence_draw_cancel(&token->draw);
  al_fence_maker_cancel(&token->maker);
}
