#!/bin/sh
# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: the amqp-locks authors
#
# The crew of the demo: a semaphore, the workers that share it, and a clock that ticks, all writing to one pipe. If the
# reader of the pipe ends, for whatever reason, the next tick fails to write. Then the workers are ended and the
# semaphore is destroyed. Start it with setsid, so that Ctrl-C reaches the reader alone.
#
#   setsid crew.sh LUA SEMAPHORE SLOTS LETTER...

lua=$1 semaphore=$2 slots=$3
shift 3
here=$(dirname "$0")

echo "crew started $$"
"$lua" "$here/admin.lua" "$semaphore" create "$slots" 2>&1 && {
  for letter; do
    { "$lua" "$here/worker.lua" "$semaphore" "$letter" 2>&1 & wait $!; echo "$letter ended $?"; } 2>/dev/null &
  done
  (while sleep 0.1 && echo; do :; done) 2>/dev/null
}

trap '' TERM
kill -s TERM -- "-$$" # the group we lead: the workers and what they started
wait
exec "$lua" "$here/admin.lua" "$semaphore" destroy >/dev/null 2>&1
