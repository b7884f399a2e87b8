/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors */
#include "core/tokens/permit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/backoff.h"
#include "core/base/field.h"
#include "core/base/ids.h"
#include "core/queue/declare.h"
#include "core/queue/fence_draw.h"
#include "core/session/fence_links.h"
#include "core/session/message.h"
#include "core/session/op.h"
#include "core/session/session.h"
#include "core/wire/link.h"

/* ---- what the broker says --------------------------------------------------------------------------------------- */

/* permit_sweep() then does the rest, which may be to send something. */
static void sweep_soon(al_session *session) { al_claims_sweep_by(session, 0); }

static void lose(al_permit *permit, const char *why) {
  al_claim_lose(&permit->claim, why);
  al_claim_enter(&permit->claim, AL_CLAIM_GONE);
}

static bool is_of(const al_permit *permit, al_source source) { return permit->source == source; }

static bool is_proved(const al_permit *permit) { return is_of(permit, AL_FROM_QUORUM_MUTEX); }

static bool is_of_mutex(const al_permit *permit) {
  return is_of(permit, AL_FROM_FAST_MUTEX) || is_proved(permit);
}

/* The broker refused the declare or the consume. A fast mutex was declared before, by this claim or by an earlier one:
 * it is absent only if it was deleted since, and the next claim makes it anew. */
static void refused(al_permit *permit, const al_event *event) {
  al_code absent = is_of_mutex(permit) ? AL_LOST : AL_NOT_FOUND;
  al_claim_blame(&permit->claim, al_event_code(event, AL_SQUATTED, absent), event->text);
  al_claim_enter(&permit->claim, AL_CLAIM_GONE);
}

int64_t al_permit_reading(const al_content *content) {
  bool is_ours = strcmp(content->type, AL_TYPE_PERMIT) == 0 && al_id_is_ours(content->message_id);
  bool is_counted = content->returns > 0 || !content->redelivered;
  return is_ours && is_counted ? al_fence_reading(content) : 0;
}

/* The queue is seen, too: a repair on this session makes permits with larger numbers. */
static int64_t number_of(const al_permit *permit, const al_content *content) {
  al_fence_links *links = permit->claim.session->fence_links;
  int64_t number = is_of(permit, AL_FROM_QUORUM) ? al_permit_reading(content) : 0;
  if (number == 0) return 0;
  al_fence_links_see(links, permit->claim.queue, number);
  return al_fence_links_see_permit(links, content->message_id, number) && !content->is_moved ? number : 0;
}

static bool wants(al_consumer *consumer, const al_content *content) {
  al_permit *permit = consumer->owner;
  al_proof *proof = &permit->proof;
  if (!is_proved(permit)) return true;
  bool is_wanted = al_proof_weighs(proof, content, permit->claim.session->now);
  bool is_second = consumer->delivery != 0 && !al_proof_is_of(proof, content);
  if (is_wanted && is_second) al_consumer_again(consumer, AL_CONSUMER_ACKNOWLEDGES);
  return is_wanted;
}

/* A message that was published again may be in another queue now. */
static void recognize(al_permit *permit, const al_content *content) {
  bool is_same = permit->token[0] && strcmp(permit->token, content->message_id) == 0;
  permit->is_known = is_same && !content->is_moved;
  memcpy(permit->token, content->message_id, sizeof permit->token);
}

static void took(al_consumer *consumer, const al_content *content) {
  al_permit *permit = consumer->owner;
  if (is_proved(permit))
    permit->is_disproved |= !al_proof_read(&permit->proof, content, permit->claim.session->now);
  if (is_of(permit, AL_FROM_FAST_MUTEX)) recognize(permit, content);
  permit->number = number_of(permit, content);
  if (permit->number > 0) snprintf(permit->id, sizeof permit->id, "%.16s", content->message_id);
}

/* True if the broker refused what al_permit_begin() has asked, or to count consumers. */
static bool is_refusal(const al_permit *permit, const al_event *event) {
  bool is_ours = is_of_mutex(permit) && event->method == AMQP_QUEUE_DECLARE_METHOD;
  return permit->claim.state == AL_CLAIM_CLAIMING && (is_ours || event->method == AMQP_BASIC_CONSUME_METHOD);
}

/* Nobody else consumes, and nothing is there to be consumed. A token that is just being given back is not counted before
 * consume-ok: the queue answers a declare before it handles a nack that came earlier. */
static bool is_deserted(const al_permit *permit, const amqp_queue_declare_ok_t *found, uint32_t own) {
  return is_of_mutex(permit) && found->message_count == 0 && found->consumer_count <= own;
}

/* The token of a quorum mutex has come, perhaps again. */
static void received(al_permit *permit) {
  al_claim *claim = &permit->claim;
  claim->session->needs_cleanup = true; /* permit_sweep() goes on */
  bool may_be_held = claim->link->hazards == 0 || al_proof_is_shielded(&permit->proof);
  if (permit->proof.proves) al_link_answered(claim->link, permit->proof.proved_at);
  if (permit->is_disproved || permit->proof.certain_until == 0) return;
  if (permit->proof.proves) claim->confirmed = permit->proves;
  claim->certain_until = permit->proof.certain_until;
  if (claim->state == AL_CLAIM_CLAIMING && may_be_held) al_claim_got(claim);
}

static void declare(const al_consumer *consumer) {
  al_permit *permit = consumer->owner;
  permit->is_declaring = true;
  al_declare_fast_mutex(consumer->channel, consumer->queue);
}

/* The message has come. */
static void take(al_permit *permit) {
  if (!is_of(permit, AL_FROM_FAST_MUTEX) || permit->declared_at != 0 || permit->is_known)
    al_claim_got(&permit->claim);
  else if (!permit->is_declaring)
    declare(&permit->consumer);
}

/* `own`: so many of the consumers are this one. */
static void declared(al_permit *permit, const amqp_queue_declare_ok_t *found, uint32_t own) {
  permit->is_declaring = false;
  permit->declared_at = permit->claim.session->now;
  permit->was_deserted = is_deserted(permit, found, own);
  if (permit->consumer.state == AL_CONSUMER_HAS && permit->claim.state == AL_CLAIM_CLAIMING) take(permit);
  al_consumer_ask(&permit->consumer);
}

static void permit_told(al_consumer *consumer, al_consumer_news news, const al_event *event) {
  al_permit *permit = consumer->owner;
  al_claim *claim = &permit->claim;
  if (news == AL_CONSUMER_RECEIVED || news == AL_CONSUMER_EMPTY)
    al_permits_expose(claim->session, &permit->is_hazard);
  switch (news) {
    case AL_CONSUMER_PREPARED:
      declared(permit, event->decoded, 0);
      break;
    case AL_CONSUMER_SUBSCRIBED:
      break;
    case AL_CONSUMER_RECEIVED:
      if (is_proved(permit))
        received(permit);
      else
        take(permit);
      break;
    case AL_CONSUMER_EMPTY:
      permit->is_none = true;
      break;
    case AL_CONSUMER_COUNTED:
      if (!is_proved(permit)) {
        declared(permit, event->decoded, 1);
        break;
      }
      al_proof_counted(&permit->proof, ((const amqp_queue_declare_ok_t *)event->decoded)->consumer_count,
                       claim->session->now);
      sweep_soon(claim->session);
      break;
    case AL_CONSUMER_ENDED:
      al_claim_enter(claim, AL_CLAIM_GONE);
      break;
    case AL_CONSUMER_CANCELLED:
      lose(permit, "its queue was deleted or is down, or it was held for longer than the broker allows");
      break;
    case AL_CONSUMER_CLOSED:
      if (is_refusal(permit, event))
        refused(permit, event);
      else
        lose(permit, event->text);
      break;
    case AL_CONSUMER_DOWN:
      lose(permit, claim->link->why);
      break;
  }
  al_claim_notify(claim);
}

/* The declare makes the queue if there is none. If there is one of another shape, the broker closes the channel, and
 * does not read the consume. */
static void prepare(const al_consumer *consumer) {
  const al_permit *permit = consumer->owner;
  if (is_proved(permit))
    al_declare_quorum_mutex(consumer->channel, consumer->queue);
  else if (is_of(permit, AL_FROM_FAST_MUTEX) && !permit->token[0])
    declare(consumer);
}

/* Only a quorum queue gets a consumer timeout: others may refuse the argument. */
static int arguments(const al_consumer *consumer, amqp_table_entry_t *entries) {
  const al_permit *permit = consumer->owner;
  int count = 0;
  if (is_of(permit, AL_FROM_QUORUM)) entries[count++] = al_field_number("x-consumer-timeout", AL_TEN_YEARS);
  /* Otherwise the broker may move the consumer to a new queue of that name, and not tell that the old one is gone. */
  if (is_of(permit, AL_FROM_FAST_MUTEX)) entries[count++] = al_field_yes("x-cancel-on-ha-failover");
  return count;
}

/* ---- does the queue still exist? -------------------------------------------------------------------------------- */

/* The queue has answered, or no answer will come. Now the consumer asks whether a permit has arrived for it. */
static void decide(al_permit *permit) {
  permit->is_deciding = false;
  al_consumer_ask(&permit->consumer);
}

static void give_up(al_permit *permit, const char *why) {
  al_claim_lose(&permit->claim, why);
  al_consumer_cancel(&permit->consumer);
  al_claim_enter(&permit->claim, AL_CLAIM_GONE);
}

/* Somebody may have deleted the queue of a fast mutex, and somebody else may have made it anew. A queue without
 * consumers does not have the holder's. */
static bool has_forgotten(const al_permit *permit, const amqp_queue_declare_ok_t *found) {
  return is_of(permit, AL_FROM_FAST_MUTEX) && permit->claim.state == AL_CLAIM_HELD &&
         found->consumer_count == 0;
}

/* RabbitMQ 4.3 never serves a consumer again if it was told twice in a row that its node is out of reach, and gives its role
 * to the next one only when a client consumes. So a waiter consumes anew, at the end of the line, if a token lies ready for so
 * long, or if one that it gave back has not come again. */
#define PASSED_OVER (60 * AL_SECOND)

static void see(al_permit *permit, const amqp_queue_declare_ok_t *found) {
  int64_t now = permit->claim.session->now;
  bool is_ready = found->message_count > 0;
  bool has_lost = permit->proof.has_token && !al_proof_has_token(&permit->proof, now);
  permit->is_answered = is_ready || found->consumer_count > 0;
  if (!is_ready || permit->ready_since == 0) permit->ready_since = is_ready ? now : 0;
  bool is_passed_over = is_ready && now >= permit->ready_since + PASSED_OVER;
  if (al_permit_waits(permit) && permit->is_answered && (has_lost || is_passed_over))
    give_up(permit, "the queue serves this consumer no more");
}

/* A quorum queue was deserted if no consumer was counted before ours, and one is now: ours. If the queue did not answer
 * the first question, the one that is counted may hold the mutex: it deletes the token that is published then. */
static bool is_deserted_now(const al_permit *permit, const amqp_queue_declare_ok_t *found) {
  return permit->was_deserted && found->message_count == 0 && found->consumer_count == 1;
}

static void checked(al_permit *permit, const amqp_queue_declare_ok_t *found) {
  if (permit->is_deciding) {
    permit->was_deserted = is_deserted_now(permit, found);
    decide(permit);
  } else if (is_proved(permit)) {
    see(permit, found);
  } else if (has_forgotten(permit, found)) {
    give_up(permit, "its queue was made anew");
  } else {
    permit->claim.confirmed++;
  }
}

/* Any refusal but 404 counts as a confirmation of the permit: the broker has answered on this connection, and has
 * not said that the permit is lost. */
static void check_refused(al_permit *permit, const al_event *event) {
  if (!is_proved(permit)) permit->claim.confirmed = permit->claim.asked;
  permit->cannot_ask = event->reply_code == AMQP_ACCESS_REFUSED;
  if (permit->is_deciding) decide(permit);
  if (event->reply_code != AMQP_NOT_FOUND || permit->claim.state != AL_CLAIM_HELD) return;
  give_up(permit, event->text);
}

static void check_answered(al_claim *claim, const al_event *event) {
  if (event->kind == AL_EVENT_CLOSED)
    check_refused((al_permit *)claim, event);
  else
    checked((al_permit *)claim, event->decoded);
}

static bool permit_confirm(al_claim *claim) {
  al_permit *permit = (al_permit *)claim;
  if (!is_proved(permit)) return al_check_ask(&permit->check);
  sweep_soon(claim->session);
  return true;
}

/* ---- proofs of a quorum mutex ------------------------------------------------------------------------------------ */

static void disprove(al_permit *permit, const char *why) {
  give_up(permit, why);
  al_claim_notify(&permit->claim);
}

static void prove(al_permit *permit) {
  al_proof *proof = &permit->proof;
  if (permit->claim.asked > permit->claim.confirmed) al_proof_hurry(proof);
  bool shields = permit->claim.link->hazards > 0 && permit->claim.state != AL_CLAIM_RELEASING;
  al_proof_act act = al_proof_next(proof, permit->claim.session->now, shields);
  if (act == AL_PROOF_RESTS) return;
  permit->proves = permit->claim.asked;
  al_proof_acts(proof, act, permit->claim.session->now);
  al_consumer_again(&permit->consumer, act == AL_PROOF_REJECTS ? AL_CONSUMER_REJECTS : AL_CONSUMER_NACKS);
  if (al_proof_needs_count(proof)) al_consumer_count(&permit->consumer);
}

/* A release during a proof waits for its end: the next client then need not wait for AL_PROOF_TAKEOVER. So does an
 * acquire that ends in doubt, without its caller: otherwise each client whose timeout is shorter begins that time anew. */
static int64_t permit_sweep(al_claim *claim) {
  al_permit *permit = (al_permit *)claim;
  al_consumer *consumer = &permit->consumer;
  bool consumes = consumer->state == AL_CONSUMER_HAS || consumer->state == AL_CONSUMER_WAITING;
  if (!is_proved(permit) || !consumes) return AL_NEVER;
  if (permit->is_disproved) {
    disprove(permit, "the broker gave it to another client meanwhile");
  } else if (claim->certain_until <= claim->session->now) {
    disprove(permit, "the queue did not confirm it in time: it has no majority, or was out of reach");
  } else if (claim->state == AL_CLAIM_RELEASING && al_proof_is_settled(&permit->proof, claim->session->now)) {
    al_consumer_return(consumer);
  } else {
    prove(permit);
    return al_earlier(al_proof_due(&permit->proof), claim->certain_until);
  }
  return AL_NEVER;
}

/* ---- beginning and ending --------------------------------------------------------------------------------------- */

static const al_consumer_kind permit_kind = {
    .prepare = prepare, .arguments = arguments, .took = took, .told = permit_told};
static const al_consumer_kind closed_kind = {.closes = true,
                                             .takes_two = true,
                                             .prepare = prepare,
                                             .arguments = arguments,
                                             .wants = wants,
                                             .took = took,
                                             .told = permit_told};

/* A cancel at a quorum queue without a majority ends the connection (541). It is not written beside a quorum mutex that
 * would be exposed to that, and until it is answered none is acquired unshielded. */
static void leave_quorum_queue(al_permit *permit) {
  if (al_permits_shield(permit->claim.session, &permit->is_hazard)) return;
  al_permits_expose(permit->claim.session, &permit->is_hazard);
  permit->consumer.kind = &closed_kind;
}

#define LINGERS_MOST (AL_PROOF_TAKEOVER + 4750 * AL_MILLISECOND) /* the token may have gone elsewhere */

static void permit_release(al_claim *claim) {
  al_permit *permit = (al_permit *)claim;
  const al_proof *proof = &permit->proof;
  int64_t now = claim->session->now;
  claim->lingers = is_proved(permit) && claim->state == AL_CLAIM_CLAIMING && al_proof_is_doubtful(proof, now);
  bool proves = is_proved(permit) && claim->state == AL_CLAIM_HELD && !al_proof_is_settled(proof, now);
  if (claim->lingers) claim->certain_until = now + LINGERS_MOST;
  if (claim->lingers || proves) {
    sweep_soon(claim->session);
    al_claim_enter(claim, AL_CLAIM_RELEASING);
    return;
  }
  if (is_of(permit, AL_FROM_QUORUM)) leave_quorum_queue(permit);
  if (is_proved(permit) || claim->owed_by != 0 || is_of(permit, AL_FROM_QUORUM))
    al_consumer_return(&permit->consumer);
  else
    al_consumer_cancel(&permit->consumer);
  al_claim_enter(claim, permit->consumer.state == AL_CONSUMER_OUT ? AL_CLAIM_GONE : AL_CLAIM_RELEASING);
}

static void permit_gone(al_claim *claim) {
  al_permit *permit = (al_permit *)claim;
  al_permits_expose(claim->session, &permit->is_hazard);
  al_check_drop(&permit->check);
}

static void permit_free(al_claim *claim) { free(claim); }

static const al_move moves[] = {
    {AL_CLAIM_CLAIMING, AL_CLAIM_HELD},      /* a message */
    {AL_CLAIM_CLAIMING, AL_CLAIM_RELEASING}, /* a release behind consume-ok: cancel */
    {AL_CLAIM_HELD, AL_CLAIM_RELEASING},     /* a release at a quorum queue, or by al_claim_undo */
    /* CLAIMING: the consume is refused (code says why), or a release before consume-ok closes the channel. HELD: a
     * release, by cancel and nack in one go, or by closing the channel. RELEASING: the last answer. Any: the queue, the
     * channel or the link ends: lost, if it was HELD */
    {AL_ANY, AL_CLAIM_GONE},
    AL_MOVES_END};

static const al_claim_kind permit_claim = {.moves = moves,
                                           .release = permit_release,
                                           .confirm = permit_confirm,
                                           .sweep = permit_sweep,
                                           .gone = permit_gone,
                                           .free = permit_free};

/* ---- hazards ------------------------------------------------------------------------------------------------------ */

static bool is_exposed(const al_claim *claim) {
  const al_permit *permit = (const al_permit *)claim;
  return claim->kind == &permit_claim && is_proved(permit) && claim->state == AL_CLAIM_HELD &&
         !al_proof_is_shielded(&permit->proof);
}

bool al_permits_shield(al_session *session, bool *is_hazard) {
  session->quorum.hazards += !*is_hazard;
  *is_hazard = true;
  bool is_safe = true;
  for (const al_claim *claim = session->claims; claim; claim = claim->next) is_safe &= !is_exposed(claim);
  if (!is_safe) sweep_soon(session);
  return is_safe;
}

void al_permits_expose(al_session *session, bool *is_hazard) {
  session->quorum.hazards -= *is_hazard;
  *is_hazard = false;
}

al_link *al_permit_link(al_session *session, al_source source) {
  bool is_quorum = source == AL_FROM_QUORUM || source == AL_FROM_QUORUM_MUTEX;
  return is_quorum ? &session->quorum : &session->holder;
}

al_permit *al_permit_begin(al_op *op, const char *queue, int priority, al_source source, const char *known,
                           int64_t new_until) {
  al_session *session = op->session;
  al_permit *permit = calloc(1, sizeof *permit);
  if (!permit) {
    al_op_fail(op, AL_NO_MEMORY, "taking from \"%s\"", queue);
    return NULL;
  }
  al_claim_init(&permit->claim, &permit_claim, session, al_permit_link(session, source), queue);
  al_check_init(&permit->check, &permit->claim, check_answered);
  permit->source = source;
  snprintf(permit->token, sizeof permit->token, "%s", known);
  permit->proof.new_until = new_until;
  if (permit->claim.link == &session->quorum) al_permits_shield(session, &permit->is_hazard);
  al_consumer_init(&permit->consumer, is_proved(permit) ? &closed_kind : &permit_kind, session,
                   permit->claim.link, permit, permit->claim.queue, is_proved(permit) ? 0 : priority);
  if (!al_consumer_subscribe(&permit->consumer)) {
    al_op_fail_channel(op, permit->claim.link,
                       "all %d channels of the connection are in use; each permit takes one",
                       permit->claim.link->channel_max);
    al_permits_expose(session, &permit->is_hazard);
    free(permit);
    return NULL;
  }
  memcpy(permit->claim.ticket, permit->consumer.tag, sizeof permit->claim.ticket);
  al_claim_list(&permit->claim);
  al_op_watch(op, &permit->claim);
  return permit;
}

bool al_permit_is_proving(const al_permit *permit) {
  return al_proof_has_token(&permit->proof, permit->claim.session->now) &&
         permit->claim.state == AL_CLAIM_CLAIMING;
}

void al_permit_look(al_permit *permit) {
  if (is_proved(permit) && al_permit_waits(permit) && !permit->cannot_ask) al_check_ask(&permit->check);
}

bool al_permit_is_doubted(const al_permit *permit) {
  return al_permit_is_proving(permit) && permit->claim.session->now < permit->proof.free_at;
}

bool al_permit_waits(const al_permit *permit) { return permit->consumer.state == AL_CONSUMER_WAITING; }

void al_permit_ask(al_permit *permit, bool checks_first) {
  permit->is_none = false;
  if (checks_first && is_of(permit, AL_FROM_FAST_MUTEX)) {
    if (!permit->is_declaring) declare(&permit->consumer);
    return;
  }
  permit->is_deciding = checks_first && al_check_ask(&permit->check);
  if (!permit->is_deciding) al_consumer_ask(&permit->consumer);
}
