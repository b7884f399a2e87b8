/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/queue/fence_draw.h"

#include <stdio.h>

#include "core/base/backoff.h"
#include "core/session/fence_links.h"
#include "core/session/session.h"

static bool is_sane(const al_content *content) {
  return content->others == 0 && content->base > 0 && content->returns >= 0;
}

static bool is_used_up(const al_content *content) {
  return is_sane(content) && content->base >= AL_FENCE_MOST - 1 - content->returns;
}

int64_t al_fence_reading(const al_content *content) {
  return is_sane(content) && !is_used_up(content) ? content->base + content->returns + 1 : 0;
}

int64_t al_fence_number(const al_content *content) {
  bool is_served = content->returns >= AL_FENCE_TRIES && !content->is_moved;
  return is_served ? al_fence_reading(content) : 0;
}

bool al_fence_fail_used_up(al_op *op, const char *fence, const al_content *content) {
  if (!is_used_up(content)) return false;
  al_op_fail(
      op, AL_CONFLICT,
      "the numbers of \"%s\" have reached 2^53, and end there: a fence that is made after forget_fence() "
      "begins with smaller ones",
      fence);
  return true;
}

int64_t al_fence_empty_for(const al_session *session) { return session->settings.timeout / 2; }

static al_link *link_of(const al_fence_draw *draw) { return &draw->op->session->fence_links->fence; }

static void wait_because(al_fence_draw *draw, const char *why) {
  al_session *session = draw->op->session;
  snprintf(draw->why, sizeof draw->why, "%.159s", why);
  draw->next_at = session->now + al_backoff_next(&draw->pause, &session->random);
}

/* ---- answers ---------------------------------------------------------------------------------------------------- */

static void got(al_fence_draw *draw, const al_content *content) {
  if (al_fence_fail_used_up(draw->op, draw->fence, content)) return;
  draw->number = al_fence_number(content);
  draw->state = draw->number > 0 ? AL_DRAW_DRAWN : AL_DRAW_DAMAGED;
}

static void was_empty(al_fence_draw *draw) {
  al_session *session = draw->op->session;
  if (draw->empty_since == AL_NEVER) draw->empty_since = session->now;
  if (session->now >= draw->empty_since + al_fence_empty_for(session))
    draw->state = AL_DRAW_MISSING;
  else
    wait_because(draw, "its message is in the hand of another client");
}

static void was_refused(al_fence_draw *draw, const al_event *event) {
  al_code code = al_event_code(event, AL_SQUATTED, AL_NOT_FOUND);
  if (code == AL_NOT_FOUND)
    draw->state = AL_DRAW_ABSENT;
  else if (code == AL_UNAVAILABLE || code == AL_UNREACHABLE)
    wait_because(draw, event->text);
  else
    al_op_fail(draw->op, code, "drawing a number from \"%s\": %s", draw->fence, event->text);
}

/* The fence may have ended the connection: draws from other fences go first on the next one. */
static void went_down(al_fence_draw *draw, const al_link *link) {
  if (!draw->was_down) draw->pause = AL_BACKOFF_SLOT;
  draw->was_down = true;
  wait_because(draw, link->why);
}

static void draw_event(void *owner, al_channel *channel, const al_event *event) {
  al_fence_draw *draw = owner;
  bool is_empty = event->kind == AL_EVENT_METHOD && event->method == AMQP_BASIC_GET_EMPTY_METHOD;
  bool is_got = event->kind == AL_EVENT_CONTENT && event->content->method == AMQP_BASIC_GET_OK_METHOD;
  bool is_over = event->kind == AL_EVENT_CLOSED || event->kind == AL_EVENT_DOWN;
  if (!is_empty && !is_got && !is_over) return;
  draw->channel = NULL;
  draw->op->session->fence_links->used_at = draw->op->session->now;
  if (!is_over) al_channel_give(channel);
  if (is_got) got(draw, event->content);
  if (is_empty) was_empty(draw);
  if (event->kind == AL_EVENT_CLOSED) was_refused(draw, event);
  if (event->kind == AL_EVENT_DOWN) went_down(draw, channel->link);
  /* when the whole connection went down, all operations are stepped afterwards */
  if (!draw->op->done && event->kind != AL_EVENT_DOWN) al_op_step(draw->op);
}

/* ---- asking ----------------------------------------------------------------------------------------------------- */

/* True if the connection is open. If it went down for a reason that may pass, another is opened. */
static bool has_link(al_fence_draw *draw) {
  al_link *link = link_of(draw);
  if (al_link_is_open(link)) {
    link->reconnect =
        AL_BACKOFF_RECONNECT; /* one fence that ends it again and again holds up no other fence */
    return true;
  }
  if (al_link_is_lost(link)) snprintf(draw->why, sizeof draw->why, "%.159s", link->why);
  al_fence_links_renew(link);
  return al_op_needs(draw->op, link);
}

static void ask(al_fence_draw *draw) {
  al_session *session = draw->op->session;
  al_channel *channel = al_channel_take(link_of(draw), draw_event, draw);
  if (!channel) {
    al_op_fail_channel(draw->op, link_of(draw), "no channel is left on the connection that draws numbers");
    return;
  }
  draw->channel = channel;
  draw->asked_at = session->fence_links->used_at = session->now;
  al_channel_peek(channel, draw->fence);
}

/* A connection that gives no answer is given up, with all draws on it. Each of them goes on on the next. */
static bool is_unanswered(const al_fence_draw *draw) {
  const al_session *session = draw->op->session;
  return draw->channel && session->now >= draw->asked_at + al_fence_empty_for(session);
}

void al_fence_draw_begin(al_fence_draw *draw, al_op *op, const char *fence) {
  int64_t now = op->session->now;
  *draw = (al_fence_draw){.op = op,
                          .fence = fence,
                          .until = al_deadline_after(now, op->session->settings.timeout),
                          .next_at = now,
                          .empty_since = AL_NEVER,
                          .pause = AL_BACKOFF_FENCE,
                          .why = "the broker did not answer"};
  al_link_forget(link_of(draw));
}

al_fence_draw_state al_fence_draw_poll(al_fence_draw *draw) {
  al_op *op = draw->op;
  int64_t now = op->session->now;
  if (is_unanswered(draw))
    al_op_abort_link(op, link_of(draw), AL_UNREACHABLE, "the broker did not answer a draw");
  if (op->done || draw->state != AL_DRAW_PENDING) return draw->state;
  if (now >= draw->until) {
    al_op_fail(op, AL_UNAVAILABLE, "no number could be drawn from \"%s\" within %g s: %s", draw->fence,
               (double)op->session->settings.timeout / (double)AL_SECOND, draw->why);
    return AL_DRAW_PENDING;
  }
  if (!draw->channel && has_link(draw) && now >= draw->next_at) ask(draw);
  if (op->done) return AL_DRAW_PENDING;
  op->wake = draw->until;
  if (draw->channel) op->wake = al_earlier(op->wake, draw->asked_at + al_fence_empty_for(op->session));
  if (!draw->channel && now < draw->next_at) op->wake = al_earlier(op->wake, draw->next_at);
  return draw->state;
}

void al_fence_draw_cancel(al_fence_draw *draw) {
  if (!draw->channel) return;
  al_channel *channel = draw->channel;
  draw->channel = NULL;
  al_channel_close(channel);
}
