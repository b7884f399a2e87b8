#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: the amqp-locks authors
"""A client that is not ours (pika), which takes slots of semaphores by the steps of docs/specification.md, 2.3, and
mutexes, until the end of its standard input; it keeps a journal as all do (see journal.lua).

    foreigner.py JOURNAL NAME URL POOLS SEED

What it holds it has asked the broker for afterwards: a passive declare of an exclusive queue succeeds for its owner."""
import pathlib
import random
import select
import sys
import time

from pika.exceptions import AMQPError

sys.dont_write_bytecode = True
sys.path.append(str(pathlib.Path(__file__).parents[2] / "spec" / "support"))
from foreign import Foreigner

HOLDER = {"x-queue-type": "classic", "x-max-length": 0, "x-overflow": "drop-head"}


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Rival:
    def __init__(self, path, name, url, pools, seed):
        self.path, self.name, self.url, self.op = open(path, "ab", buffering=0), name, url, 0
        self.random = random.Random(int(seed))
        lines = [line.split() for line in pools.splitlines()]
        self.pools = [line for line in lines if line[1] in ("classic", "quorum", "mutex")]
        self.client = None

    def note(self, act, **fields):
        words = [f"{now():.7f}", act]
        for name, value in fields.items():
            if value is not None:
                words.append(f"{name}={value:.7f}" if isinstance(value, float) else f"{name}={value}")
        self.path.write(("\t".join(words) + "\n").encode())

    def declare(self, queue):
        return self.client.declare(queue, "exclusive", "auto_delete", arguments=HOLDER) == "ok"

    def is_there(self, queue):
        return self.client.declare(queue, "passive") == "ok"

    def is_absent(self, queue):
        """By a mandatory publish, where the broker has no alarm and takes it."""
        return self.client.publish(queue) == "absent"

    def delete(self, queue):
        self.client.channel().queue_delete(queue)

    def acquire(self, name, kind):
        """The queue that was declared and its slot, or None."""
        if kind == "mutex":
            return (f"{name}-mutex", None) if self.declare(f"{name}-mutex") else None
        slot = 1
        while not self.is_absent(f"{name}-{slot}-A"):
            holder = f"{name}-{slot}-B"
            if self.is_absent(holder) and self.declare(holder):
                if self.is_there(f"{name}-{slot}-A"):
                    return holder, slot
                self.delete(holder)
            slot += 1
        return None

    def turn(self):
        if not self.client:
            self.client = Foreigner(self.url, blocked_connection_timeout=2,
                                    client_properties={"connection_name": self.name})
        name, kind = self.random.choice(self.pools)[:2]
        self.op += 1
        self.note("ask", op=self.op, pool=name, way="declare", within=10)
        got = self.acquire(name, kind)
        if not got:
            self.note("none", op=self.op, code="busy")
            return
        queue, slot = got
        self.note("got", op=self.op, slot=slot, kind="slot" if slot else "mutex", ticket="none")
        until, since = now() + self.random.random() ** 2 * 0.1, now()
        while self.is_there(queue):
            self.note("held", **{"op": self.op, "from": since})
            if now() >= until:
                break
            time.sleep(0.003)
            since = now()
        self.note("let", op=self.op, how="delete", within=10)
        self.delete(queue)
        self.note("free", op=self.op)

    def run(self):
        while self.pools and not select.select([sys.stdin], [], [], self.random.random() ** 2 * 0.1)[0]:
            try:
                self.turn()
            except (AMQPError, OSError) as problem:
                self.note("trouble", message=" ".join(repr(problem).split()))
                self.client = None
                time.sleep(0.1)
        if self.client:
            self.client.connection.close()
        self.note("end")


Rival(*sys.argv[1:]).run()
