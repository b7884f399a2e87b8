/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * Includes the headers of rabbitmq-c. Newer versions moved them to rabbitmq-c/ and warn when the old place is
 * used. */
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
