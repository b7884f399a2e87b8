/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/wire/link.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/moves.h"

static const al_move moves[] = {
    {AL_LINK_IDLE, AL_LINK_GREETING},   /* wanted, due, and attached */
    {AL_LINK_GREETING, AL_LINK_TUNING}, /* start */
    {AL_LINK_TUNING, AL_LINK_OPENING},  /* tune */
    {AL_LINK_OPENING, AL_LINK_OPEN},    /* open-ok */
    {AL_LINK_OPEN, AL_LINK_CLOSING},    /* al_connection_close */
    {AL_LINK_GREETING, AL_LINK_IDLE},   /* these three: this place has failed, another is left */
    {AL_LINK_TUNING, AL_LINK_IDLE},
    {AL_LINK_OPENING, AL_LINK_IDLE},
    {AL_ANY, AL_LINK_DOWN},
    {AL_LINK_DOWN, AL_LINK_IDLE}, /* al_link_forget: nothing is carried over */
    AL_MOVES_END};

void al_link_enter(al_link *link, al_link_state state) {
  al_move_check(moves, link->state, state);
  link->state = state;
}

void al_link_init(al_link *link, const al_settings *settings, al_cluster *cluster, const char *role,
                  uint64_t *random) {
  *link = (al_link){.settings = settings,
                    .cluster = cluster,
                    .role = role,
                    .random = random,
                    .reconnect = AL_BACKOFF_RECONNECT,
                    .overdue_at = AL_NEVER};
}

int64_t al_link_heartbeat(const al_link *link) { return link->settings->heartbeat * AL_SECOND; }

bool al_link_is_open(const al_link *link) { return link->state == AL_LINK_OPEN; }

bool al_link_is_lost(const al_link *link) { return link->state == AL_LINK_DOWN; }

/* ---- nodes ------------------------------------------------------------------------------------------------------ */

static size_t nodes_count(const al_link *link) { return link->nodes ? link->nodes->count : 1; }

static size_t addresses_count(const al_link *link) { return link->addresses ? link->addresses->count : 1; }

static void forget_addresses(al_link *link) {
  free(link->addresses);
  link->addresses = NULL;
  link->tried_addresses = 0;
  link->resolving = 0;
}

static void use_address(al_link *link, size_t address) {
  link->address = address % link->addresses->count;
  memcpy(link->last_address, link->addresses->at[link->address], sizeof link->last_address);
}

static void use_node(al_link *link, size_t node) {
  forget_addresses(link);
  link->node = node % nodes_count(link);
  if (link->nodes) link->settings = &link->nodes->at[link->node];
}

/* Begins with the node after the last attempt's, or, in the first attempt, with the node that accepted another
 * link. */
static void begin_attempt(al_link *link) {
  use_node(link, link->has_begun ? link->node + 1 : link->cluster->good);
  link->has_begun = true;
}

void al_link_end_attempt(al_link *link) {
  forget_addresses(link);
  link->tried = link->tried_places = 0;
  link->tried_words[0] = '\0';
  link->is_addressed = false;
}

static bool is_elsewhere(const al_settings *settings, const al_link *link) {
  return settings->port != link->settings->port || strcmp(settings->host, link->settings->host) != 0;
}

bool al_link_readdress(al_link *link, const al_settings *settings, size_t count) {
  assert(!link->port);
  al_nodes *nodes =
      al_nodes_new(settings, count, link->settings, link->is_shuffled ? &link->cluster->seed : NULL);
  if (!nodes) return false;
  size_t node = link->node;
  al_nodes *old = link->nodes;
  link->moves = link->moves || count > 1 || is_elsewhere(settings, link);
  link->nodes = nodes;
  use_node(link, node);
  link->is_addressed = true;
  al_nodes_free(old);
  return true;
}

void al_link_rotate(al_link *link, bool rotates, bool is_addressed) {
  link->rotates = rotates;
  link->is_addressed = is_addressed;
}

bool al_link_is_tls(const al_link *link) {
  for (size_t i = 0; link->nodes && i < link->nodes->count; i++)
    if (!link->nodes->at[i].tls) return false;
  return link->settings->tls;
}

bool al_link_lacks_addresses(const al_link *link) {
  return al_link_is_ready(link) && !link->addresses && !al_address_is_numeric(link->settings->host);
}

/* Begins with the address after the last one, or with the one that accepted another link. */
void al_link_resolve(al_link *link, al_addresses *addresses, int64_t spent) {
  size_t last = al_addresses_find(addresses, link->last_address);
  forget_addresses(link);
  link->addresses = addresses;
  link->resolving = spent;
  use_address(link,
              last < addresses->count ? last + 1 : al_addresses_find(addresses, link->cluster->good_address));
}

const char *al_link_place(const al_link *link) {
  return link->addresses ? link->addresses->at[link->address] : link->settings->host;
}

bool al_link_has_places(const al_link *link) { return nodes_count(link) > 1 || addresses_count(link) > 1; }

size_t al_link_places_left(const al_link *link) {
  return (nodes_count(link) - link->tried) * (addresses_count(link) - link->tried_addresses);
}

void al_link_go_on(al_link *link) {
  link->tried_places++;
  if (addresses_count(link) - link->tried_addresses > 1) {
    link->tried_addresses++;
    use_address(link, link->address + 1);
    return;
  }
  link->tried++;
  use_node(link, link->node + 1);
}

int64_t al_link_share(const al_link *link) {
  int64_t of_node = link->settings->timeout / (int64_t)nodes_count(link) - link->resolving;
  int64_t share = of_node / (int64_t)addresses_count(link);
  return share > 0 ? share : 1;
}

/* ---- wanting ---------------------------------------------------------------------------------------------------- */

void al_link_want(al_link *link) {
  if (link->state != AL_LINK_IDLE || link->wanted) return;
  link->wanted = true;
  link->has_broken = false;
  begin_attempt(link);
}

bool al_link_is_due(const al_link *link) { return link->wanted && link->now >= link->due_at; }

bool al_link_is_ready(const al_link *link) {
  return al_link_is_due(link) && (link->is_addressed || !link->rotates);
}

void al_link_pause(al_link *link) {
  link->due_at = link->now + al_backoff_next(&link->reconnect, link->random);
  if (link->code != AL_CLOSED)
    AL_TRACE(link->trace, "%s: pauses for %" PRId64 " ms before it connects again", link->role,
             (link->due_at - link->now) / AL_MILLISECOND);
}

void al_link_put_off(al_link *link) {
  bool is_last = al_link_places_left(link) == 1;
  al_link_go_on(link);
  if (!is_last) return;
  al_link_pause(link);
  al_link_end_attempt(link);
}

void al_link_forget(al_link *link) {
  if (link->state == AL_LINK_DOWN) al_link_enter(link, AL_LINK_IDLE);
}

void al_link_send(al_link *link, const amqp_frame_t *frame) {
  if (!link->port) return;
  if (link->trace) al_trace_frame(link->trace, link->role, ">", frame);
  link->sent_at = link->now;
  link->port->kind->send(link->port, frame);
}

void al_link_method(al_link *link, int channel, amqp_method_number_t method, void *decoded) {
  amqp_frame_t frame = {.frame_type = AMQP_FRAME_METHOD, .channel = (amqp_channel_t)channel};
  frame.payload.method.id = method;
  frame.payload.method.decoded = decoded;
  al_link_send(link, &frame);
}

void al_link_answered(al_link *link, int64_t asked_at) {
  if (asked_at <= link->answered_at) return;
  link->answered_at = asked_at;
  link->certain_until = asked_at + 2 * al_link_heartbeat(link) - al_link_heartbeat(link) / 20;
}

#define ENDS_ALONE 40300 /* the first RabbitMQ whose queues delete nothing but themselves when they end */

bool al_link_ends_by_name(const al_link *link) { return link->version > 0 && link->version < ENDS_ALONE; }

int64_t al_link_certain_until(const al_link *link) { return link->certain_until; }
