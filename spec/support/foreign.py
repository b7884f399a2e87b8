#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: the amqp-locks authors
"""A client without this library: pika. It reads commands from standard input, one a line, and answers each with a line.
It is also a module with that client.

    declare QUEUE [durable|exclusive|passive]...   ok, or the broker's refusal: "405 RESOURCE_LOCKED - ..."
    delete QUEUE                                   the same
    publish QUEUE                                  present, absent or unavailable: a mandatory publish with confirms
    count QUEUE                                    how many messages are ready
    take QUEUE                                     taken: waits for a message, and does not acknowledge it
    give nack|reject                               ok: requeues it, and stops consuming

Exclusive queues belong to its connection and end with it, at the end of standard input."""
import os
import sys

import pika
from pika.exceptions import ChannelClosedByBroker, NackError, UnroutableError


class Foreigner:
    def __init__(self, url, **settings):
        parameters = pika.URLParameters(url)
        parameters.heartbeat = 0  # pika reads nothing while this waits for a command
        for name, value in settings.items():
            setattr(parameters, name, value)
        self.connection = pika.BlockingConnection(parameters)
        self.channels = {}

    def channel(self, confirms=False):
        """A channel of either kind, anew if the broker closed the last one."""
        if confirms not in self.channels or not self.channels[confirms].is_open:
            self.channels[confirms] = self.connection.channel()
            if confirms:
                self.channels[confirms].confirm_delivery()
        return self.channels[confirms]

    def declare(self, queue, *flags, arguments=None):
        try:
            self.channel().queue_declare(queue, arguments=arguments, **{flag: True for flag in flags})
            return "ok"
        except ChannelClosedByBroker as reason:
            return f"{reason.reply_code} {reason.reply_text}"

    def delete(self, queue):
        try:
            self.channel().queue_delete(queue)
            return "ok"
        except ChannelClosedByBroker as reason:
            return f"{reason.reply_code} {reason.reply_text}"

    def publish(self, queue):
        try:
            self.channel(confirms=True).basic_publish("", queue, b"", mandatory=True)
            return "present"
        except UnroutableError:
            return "absent"
        except NackError:
            return "unavailable"

    def count(self, queue):
        return str(self.channel().queue_declare(queue, passive=True).method.message_count)

    def take(self, queue):
        channel = self.channel()
        channel.basic_qos(prefetch_count=1)
        self.taken = next(channel.consume(queue))[0].delivery_tag
        return "taken"

    def give(self, how):
        getattr(self.channel(), f"basic_{how}")(self.taken, requeue=True)
        self.channel().cancel()
        return "ok"


def main():
    foreigner = Foreigner(os.environ["AMQP_URL"])
    for line in sys.stdin:
        command, *arguments = line.split()
        print(getattr(foreigner, command)(*arguments), flush=True)
    foreigner.connection.close()


if __name__ == "__main__":
    main()
