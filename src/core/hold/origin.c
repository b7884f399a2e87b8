/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/hold/origin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/name.h"
#include "core/hold/names.h"
#include "core/session/session.h"
#include "core/wire/channel.h"

#define ORIGINS_MOST 16
/* after that it is asked again: an administrator may have made the queue ours */
#define FOREIGN_FOR (60 * AL_SECOND)

struct al_origin {
  al_origin *next; /* the one noted before it */
  al_session *session;
  char queue[AL_NAME_SIZE];
  enum { AL_ORIGIN_NOTED, AL_ORIGIN_ASKED, AL_ORIGIN_OURS, AL_ORIGIN_FOREIGN } state;
  al_channel *channel; /* ASKED: the question's */
  int64_t asked_at;
};

/* The pointer to it, or to the end of the list. */
static al_origin **find(al_session *session, const char *queue) {
  al_origin **at = &session->origins;
  while (*at && strcmp((*at)->queue, queue) != 0) at = &(*at)->next;
  return at;
}

static void drop(al_origin **at) {
  al_origin *origin = *at;
  *at = origin->next;
  if (origin->channel) al_channel_close(origin->channel);
  free(origin);
}

/* ---- asking ----------------------------------------------------------------------------------------------------- */

static bool is_of_marks(const al_event *event) {
  bool is_there = event->kind == AL_EVENT_METHOD;
  bool is_down =
      event->kind == AL_EVENT_CLOSED && event->reply_code == AMQP_NOT_FOUND && !al_event_is_absent(event);
  return is_there || is_down;
}

static void origin_event(void *owner, al_channel *channel, const al_event *event) {
  al_origin *origin = owner;
  bool is_declared = event->kind == AL_EVENT_METHOD && event->method == AMQP_QUEUE_DECLARE_OK_METHOD;
  if (event->kind == AL_EVENT_CONTENT || (event->kind == AL_EVENT_METHOD && !is_declared)) return;
  origin->channel = NULL;
  origin->state = is_of_marks(event) ? AL_ORIGIN_OURS : AL_ORIGIN_FOREIGN;
  if (is_declared) al_channel_give(channel);
}

static bool is_to_be_asked(const al_origin *origin) {
  bool is_old = origin->state == AL_ORIGIN_FOREIGN && origin->session->now >= origin->asked_at + FOREIGN_FOR;
  return origin->state == AL_ORIGIN_NOTED || is_old;
}

/* Without a free channel the state stays, and the next call asks. */
static void ask(al_origin *origin) {
  char marks[AL_NAME_SIZE];
  if (!is_to_be_asked(origin)) return;
  origin->channel = al_channel_take(&origin->session->holder, origin_event, origin);
  if (!origin->channel) return;
  origin->state = AL_ORIGIN_ASKED;
  origin->asked_at = origin->session->now;
  al_name(marks, AL_SUFFIX_MARKS, origin->queue);
  al_channel_declare_passive(origin->channel, marks);
}

void al_origins_ask(al_session *session) {
  for (al_origin *origin = session->origins; origin; origin = origin->next) ask(origin);
}

/* ---- remembering ------------------------------------------------------------------------------------------------ */

static al_origin *add(al_session *session, const char *queue) {
  al_origin *origin = calloc(1, sizeof *origin), **last = &session->origins;
  if (!origin) return NULL;
  origin->session = session;
  snprintf(origin->queue, sizeof origin->queue, "%s", queue);
  origin->next = session->origins;
  session->forget_origins = al_origins_forget;
  session->origins = origin;
  for (int i = 0; i < ORIGINS_MOST && *last; i++) last = &(*last)->next;
  if (*last) drop(last);
  return origin;
}

void al_origin_note(al_session *session, const char *queue) {
  al_origin *origin = *find(session, queue);
  if (!origin) origin = add(session, queue);
  if (origin && al_names_are_any(session)) ask(origin);
}

bool al_origin_is_ours(const al_session *session, const char *queue) {
  for (const al_origin *origin = session->origins; origin; origin = origin->next)
    if (strcmp(origin->queue, queue) == 0) return origin->state == AL_ORIGIN_OURS;
  return false;
}

void al_origin_forget(al_session *session, const char *queue) {
  al_origin **at = find(session, queue);
  if (*at) drop(at);
}

void al_origins_forget(al_session *session) {
  while (session->origins) drop(&session->origins);
}
