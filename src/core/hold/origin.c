/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/hold/origin.h"

#include "core/base/name.h"
#include "core/session/annex.h"
#include "core/wire/channel.h"

/* after that it is asked again: an administrator may have made the queue ours */
#define FOREIGN_FOR (60 * AL_SECOND)

typedef struct origin {
  enum { NOTED, ASKED, OURS, FOREIGN } state;
  al_channel *channel; /* ASKED: the question's */
  int64_t asked_at;
} origin;

static void drop(void *thing) {
  const origin *self = thing;
  if (self->channel) al_channel_close(self->channel);
}

/* By the name of the queue. */
static const al_annex_kind origins = {.size = sizeof(origin), .most = 16, .goes_down = true, .drop = drop};

/* ---- asking ----------------------------------------------------------------------------------------------------- */

static bool is_of_marks(const al_event *event) {
  bool is_there = event->kind == AL_EVENT_METHOD;
  bool is_down =
      event->kind == AL_EVENT_CLOSED && event->reply_code == AMQP_NOT_FOUND && !al_event_is_absent(event);
  return is_there || is_down;
}

static void origin_event(void *owner, al_channel *channel, const al_event *event) {
  origin *self = owner;
  bool is_declared = event->kind == AL_EVENT_METHOD && event->method == AMQP_QUEUE_DECLARE_OK_METHOD;
  if (event->kind == AL_EVENT_CONTENT || (event->kind == AL_EVENT_METHOD && !is_declared)) return;
  self->channel = NULL;
  self->state = is_of_marks(event) ? OURS : FOREIGN;
  if (is_declared) al_channel_give(channel);
}

/* Without a free channel the state stays, and the next call asks. */
static void ask(al_session *session, const char *queue, void *thing) {
  origin *self = thing;
  char marks[AL_NAME_SIZE];
  bool is_old = self->state == FOREIGN && session->now >= self->asked_at + FOREIGN_FOR;
  if (self->state != NOTED && !is_old) return;
  self->channel = al_channel_take(&session->holder, origin_event, self);
  if (!self->channel) return;
  self->state = ASKED;
  self->asked_at = session->now;
  al_name(marks, AL_SUFFIX_MARKS, queue);
  al_channel_declare_passive(self->channel, marks);
}

void al_origins_ask(al_session *session) { al_annex_each(session, &origins, ask); }

/* ---- remembering ------------------------------------------------------------------------------------------------ */

void al_origin_note(al_session *session, const char *queue, bool is_beside) {
  origin *self = al_annex_use(session, &origins, queue);
  if (self && is_beside) ask(session, queue, self);
}

bool al_origin_is_ours(const al_session *session, const char *queue) {
  const origin *self = al_annex_find(session, &origins, queue);
  return self && self->state == OURS;
}

void al_origin_forget(al_session *session, const char *queue) { al_annex_drop(session, &origins, queue); }
