/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * rabbitmq-c, wherever its headers are: newer versions moved them and warn about the old place. */
#ifndef AL_CORE_BASE_AMQP_H
#define AL_CORE_BASE_AMQP_H

#if __has_include(<rabbitmq-c/amqp.h>)
#include <rabbitmq-c/amqp.h>
#include <rabbitmq-c/framing.h>
#else
#include <amqp.h>
#include <amqp_framing.h>
#endif

#endif
