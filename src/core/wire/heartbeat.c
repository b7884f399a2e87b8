/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/wire/heartbeat.h"

#include "core/wire/channel.h"

static void pulse_event(void *owner, al_channel *channel, const al_event *event) {
  (void)channel;
  al_link *link = owner;
  if (event->kind == AL_EVENT_CLOSED || event->kind == AL_EVENT_DOWN) link->pulse = NULL;
}

static al_channel *pulse_channel(al_link *link) {
  if (!link->pulse) link->pulse = al_channel_take(link, pulse_event, link);
  if (link->pulse) return link->pulse;
  for (int number = 1; number < link->channels_size; number++) {
    al_channel *channel = link->channels[number];
    if (channel && channel->state == AL_CHANNEL_OPEN) return channel;
  }
  return NULL;
}

bool al_heartbeat_is_missed(const al_link *link) {
  return link->now - link->heard_at > 2 * al_link_heartbeat(link);
}

void al_heartbeat_pulse(al_link *link) {
  if (link->pulses == 0 || link->now < link->pulsed_at + al_link_heartbeat(link) / 2) return;
  link->pulsed_at = link->now;
  al_channel *channel = pulse_channel(link);
  if (channel && channel->unanswered <= 1) al_channel_ping(channel);
}

void al_heartbeat_send(al_link *link) {
  if (link->now - link->sent_at < al_link_heartbeat(link) / 2) return;
  amqp_frame_t frame = {.frame_type = AMQP_FRAME_HEARTBEAT};
  al_link_send(link, &frame);
}

void al_heartbeat_excuse(al_link *link, int64_t pumped_at) {
  int64_t beat = al_link_heartbeat(link);
  if (link->now - pumped_at > beat && link->now - link->heard_at > beat) link->heard_at = link->now - beat;
}

static int64_t sooner(int64_t a, int64_t b) { return a < b ? a : b; }

int64_t al_heartbeat_wake(const al_link *link) {
  int64_t beat = al_link_heartbeat(link) / 2;
  int64_t wake = sooner(link->sent_at + beat, link->heard_at + 4 * beat + 1);
  return link->pulses > 0 ? sooner(wake, link->pulsed_at + beat) : wake;
}
