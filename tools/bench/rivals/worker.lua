-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- What the processes of tools/bench/rivals.lua do. A lock is named by how it is opened: a module of this folder, and
-- what its `open` is given.
local bare = require "bare"
local baton = require "baton"

local worker = {}

local function open(module, ...) return require("tools.bench.rivals." .. module).open(...) end

local holding -- until the end of the process

--- Takes it, and keeps it.
function worker.hold(...)
  holding = open(...)
  holding:acquire()
end

--- Opens it, for `wait`.
function worker.prepare(...)
  worker.opened = open(...)
end

--- Takes it; gives the time when it had it.
function worker.wait()
  local lock = worker.opened
  lock:acquire()
  local got = bare.now()
  lock:release()
  lock:close()
  return got
end

--- From `start` to `finish` takes it and lets go of it, again and again. With a number of seconds to hold it, who has
-- let go comes back only when another one has it: so all others wait all the time, and nobody overtakes them. Gives, as
-- text, when it had it and when it began to let go.
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
