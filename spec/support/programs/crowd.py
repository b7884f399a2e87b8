# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: the amqp-locks authors

"""A crowd of amqp-locks compete for one mutex, and every third is killed while its command runs.

    crowd.py AMQP_LOCK NAME COUNT RUNS WITNESS

COUNT of them run at a time, RUNS in all. Each command takes a flock(2) of WITNESS, which the kernel frees when its last
process has ended: a command that finds it taken is inside beside another one. The command of one that is killed never
ends by itself, and every second of these ignores TERM. Prints "overlaps N, killed N, ended N".
"""
import os
import subprocess
import sys

SCRIPT = """
exec 9>>"$1"
flock -n 9 && what=alone || what=overlap
[ "$3" = deaf ] && trap '' TERM
echo "$what $2 $3" >&8
[ "$3" = quick ] && exec sleep 0.01
while :; do sleep 600; done
"""


def start(number, name, amqp_lock, witness):
    manner = "deaf" if number % 6 == 0 else "slow" if number % 3 == 0 else "quick"
    return subprocess.Popen([amqp_lock, "--grace", "1", name, "sh", "-c", SCRIPT, "sh", witness, str(number), manner],
                            stdin=subprocess.DEVNULL, pass_fds=(8,))


def main():
    amqp_lock, name, count, runs, witness = sys.argv[1:]
    read, write = os.pipe()
    os.dup2(write, 8)
    crowd, overlaps = {}, 0
    for number in range(1, int(count) + 1):
        crowd[number] = start(number, name, amqp_lock, witness)
    lines = os.fdopen(read)
    for _ in range(int(runs)):
        what, number, manner = lines.readline().split()
        overlaps += what == "overlap"
        if manner != "quick":
            crowd[int(number)].kill()
        if len(crowd) < int(runs):
            crowd[len(crowd) + 1] = start(len(crowd) + 1, name, amqp_lock, witness)
    statuses = [one.wait() for one in crowd.values()]
    print("overlaps %d, killed %d, ended %d" % (overlaps, statuses.count(-9), statuses.count(0)))


main()
