#!/bin/sh
# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: the amqp-locks authors
#
# The crew of the demo: a semaphore, the workers that share it, and a clock that ticks, all writing to one pipe.
# That pipe is also the leash: however its reader ends, the next tick finds nobody there, and then the workers are
# ended and the semaphore is destroyed. To be started with setsid, so that Ctrl-C is a matter for the reader alone.
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
