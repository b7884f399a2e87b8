-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The code of the processes of tools/bench/rivals.lua. A lock is given by a module of this folder, and the arguments
-- of its `open`.
local bare = require "bare"
local baton = require "baton"

local worker = {}

local function open(module, ...) return require("tools.bench.rivals." .. module).open(...) end

local holding -- until the end of the process

--- Acquires the lock, and keeps it.
function worker.hold(...)
  holding = open(...)
  holding:acquire()
end

--- Opens the lock, for `wait`.
function worker.prepare(...)
  worker.opened = open(...)
end

--- Acquires the lock; returns the time of success.
function worker.wait()
  local lock = worker.opened
  lock:acquire()
  local got = bare.now()
  lock:release()
  lock:close()
  return got
end

--- Acquires and releases the lock again and again, from `start` to `finish`. With `seconds` to hold it, a process that
-- has released it comes back only when another process holds it: so all others wait all the time, and none is
-- overtaken. Returns, as text, the times at which it held the lock and at which it began to release it.
function worker.contend(start, finish, seconds, path)
  local lock, turns, log = worker.opened, baton.open(path), {}
  bare.sleep(math.max(0, start - bare.now()))
  repeat
    lock:acquire()
    local got = bare.now()
    local turn = turns:pass()
    if seconds > 0 then bare.sleep(seconds) end
    local released = bare.now()
    lock:release()
    log[#log + 1] = ("%.9f %.9f"):format(got, released)
    if seconds > 0 then turns:await(turn, math.max(0, finish - bare.now())) end
  until bare.now() >= finish
  lock:close()
  return table.concat(log, "\n")
end

return worker
