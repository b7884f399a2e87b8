/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/session/session.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/random.h"
#include "core/session/fence_links.h"
#include "core/session/turn.h"

void al_session_note_change(al_session *session, al_link *link, al_link_change change) {
  const al_settings *s = link->settings;
  link->told = 0;
  if (change == AL_LINK_OPENED)
    al_session_note(session, false, AL_OK, "", "%s connection to %s:%d is open", link->role, s->host,
                    s->port);
  else if (change == AL_LINK_BLOCKED)
    al_session_note(session, true, AL_BLOCKED, "", "the broker has an alarm and reads no publishers");
  else if (change == AL_LINK_UNBLOCKED)
    al_session_note(session, false, AL_OK, "", "the broker's alarm is over: it reads publishers again");
  else if (link->code != AL_CLOSED) {
    al_session_note(session, true, link->code, "", "%s connection to %s:%d: %s", link->role, s->host, s->port,
                    link->why);
    link->told = session->notes_first + session->notes_count;
  }
}

void al_session_ref(al_session *session) { session->refs++; }

void al_session_unref(al_session *session) {
  if (--session->refs == 0) session->end(session);
}

al_session *al_turn_take(al_session *session) {
  if (session->take_turn) session->take_turn(session);
  return session;
}

void al_turn_give(al_session **session) {
  if ((*session)->give_turn) (*session)->give_turn(*session);
}

bool al_session_forked(const al_session *session) {
  return session->has_forked && session->has_forked(session);
}

void al_session_ticket(al_session *session, char out[AL_TICKET_SIZE]) {
  uint64_t number = al_random(&session->random);
  for (int i = 15; i >= 0; i--, number >>= 4) out[i] = "0123456789abcdef"[number & 15];
  out[16] = '\0';
}

int64_t al_session_microseconds(const al_session *session) {
  return (int64_t)((session->wall + (double)session->now / (double)AL_SECOND) * 1e6);
}

void al_session_set_now(al_session *session, int64_t now) {
  session->now = session->holder.now = session->quorum.now = session->prober->now = now;
  al_fence_links_set_now(session->fence_links, now);
}

void al_session_look_at_clock(al_session *session) {
  if (session->clock) al_session_set_now(session, session->clock(session));
}

void al_session_set_time(al_session *session, int64_t now, double wall_now) {
  al_session_set_now(session, now);
  session->wall = wall_now - (double)now / (double)AL_SECOND;
}

#define NOTES_MOST 16

void al_session_note(al_session *session, bool is_warning, al_code code, const char *name, const char *format,
                     ...) {
  if (!session->notes) session->notes = calloc(NOTES_MOST, sizeof *session->notes);
  if (!session->notes) return;
  if (session->notes_count == NOTES_MOST) {
    session->notes_first++;
    session->notes_count--;
  }
  al_note *note = &session->notes[(session->notes_first + session->notes_count++) % NOTES_MOST];
  va_list arguments;
  va_start(arguments, format);
  *note = (al_note){.is_warning = is_warning, .code = code, .at = session->now};
  snprintf(note->name, sizeof note->name, "%s", name);
  vsnprintf(note->text, sizeof note->text, format, arguments);
  va_end(arguments);
  AL_TRACE(session->holder.trace, "note: %s", note->text);
}

bool al_session_news(al_session *session, al_note *note) {
  AL_TURN(session);
  while (session->notes_count > 0) {
    session->notes_count--;
    *note = session->notes[session->notes_first++ % NOTES_MOST];
    if (note->text[0] != '\0') return true;
  }
  return false;
}

bool al_session_is_quiet(const al_session *session, uint64_t alerts) {
  return session->notes_count == 0 && session->alerts == alerts;
}

void al_session_unnote(al_session *session, unsigned number) {
  bool is_kept = number > session->notes_first && number <= session->notes_first + session->notes_count;
  if (is_kept) session->notes[(number - 1) % NOTES_MOST].text[0] = '\0';
}

void al_session_alert(al_session *session) {
  if (session->closed) return;
  session->alerts++;
  if (session->alarm) session->alarm(session, true);
}

uint64_t al_session_alerts(al_session *session) {
  if (al_session_forked(session)) return 0;
  AL_TURN(session); /* otherwise this could switch off the alarm of an alert that comes now */
  if (session->alarm) session->alarm(session, false);
  return session->alerts_seen = session->alerts;
}

void al_session_links(al_session *session, al_link *links[AL_LINKS]) {
  links[0] = &session->holder;
  links[1] = session->prober;
  links[2] = &session->fence_links->fence;
  links[3] = &session->fence_links->maker;
  links[4] = &session->quorum;
}

void al_session_flush(al_session *session) {
  al_link *links[AL_LINKS];
  al_session_links(session, links);
  for (int i = 0; i < AL_LINKS; i++)
    if (links[i]->port) links[i]->port->kind->flush(links[i]->port);
}
