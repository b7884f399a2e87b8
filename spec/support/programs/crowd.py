# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: the amqp-locks authors

"""A crowd of amqp-locks compete for one mutex, and every third is killed while its command runs.

    crowd.py AMQP_LOCK NAME COUNT RUNS WITNESS

COUNT of them run at a time, RUNS in all. Each command takes a flock(2) of WITNESS, which the kernel frees when its last
process has ended: a command that finds it taken is inside beside another one. The command of one that is killed never
ends by itself, and every second of these ignores TERM. Prints "overlaps N, killed N, ended N".
"""
import fcntl
import os
import subprocess
import sys

SCRIPT = """
exec 9>>"$1"
flock -n 9 && what=alone || what=overlap
[ "$4" = deaf ] && trap '' TERM
echo "$what $2 $3" >&8
[ "$4" = quick ] && exec sleep 0.01
while :; do sleep 600; done
"""


def start(number, name, amqp_lock, witness, write):
    victim = number % 3 == 0
    manner = "deaf" if number % 6 == 0 else "slow" if victim else "quick"
    what = "victim" if victim else "other"
    os.dup2(write, 8)
    os.set_inheritable(8, True)
    return subprocess.Popen([amqp_lock, "--grace", "1", name, "sh", "-c", SCRIPT, "sh", witness, str(number), what,
                             manner], stdin=subprocess.DEVNULL, pass_fds=(8,))


def main():
    amqp_lock, name, count, runs, witness = sys.argv[1:4] + [int(sys.argv[4])] + sys.argv[5:6]
    count = int(count)
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 65536)
    crowd, begun, overlaps, killed = {}, 0, 0, 0
    lines = os.fdopen(read)
    inside = 0
    while begun < min(count, runs):
        begun += 1
        crowd[begun] = start(begun, name, amqp_lock, witness, write)
    while inside < runs:
        what, number, kind = lines.readline().split()
        inside += 1
        overlaps += what == "overlap"
        if kind == "victim":
            crowd[int(number)].kill()
            killed += 1
        if begun < runs:
            begun += 1
            crowd[begun] = start(begun, name, amqp_lock, witness, write)
    statuses = [one.wait() for one in crowd.values()]
    print("overlaps %d, killed %d, ended %d" % (overlaps, statuses.count(-9), statuses.count(0)))


main()
