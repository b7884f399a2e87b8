-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A process that acquires and releases a readers–writer lock at random. All walkers log to one shared file when they
-- are inside: each line is one write, appended to the file while the lock is held.
local socket = require "socket"

local walker = {}

local EXPECTED = { timeout = true, busy = true, contended = true }

local function note(self, what)
  self.log:write(("%s %s %d\n"):format(what, self.seat, self.pid))
  self.log:flush()
end

local function linger(self) socket.sleep(math.random() ^ 2 * self.pause) end

local function options()
  local chance, timeout = math.random(), nil
  if chance < 0.15 then timeout = 0 elseif chance < 0.4 then timeout = math.random() * 0.03 end
  return { timeout = timeout, fair = math.random() < 0.25, poll = 0.2 + math.random() }
end

-- The walker still holds the lock while it logs that it is in, and that it leaves or goes on as a reader.
local function inside(self, kind, lock)
  note(self, kind)
  linger(self)
  if kind == "write" and math.random() < 0.3 then
    note(self, "reads-on")
    local is_reader, message, code = lock:downgrade()
    if code == "lost" and self.may_be_robbed then return note(self, "robbed") end
    assert(is_reader, message)
    linger(self)
  end
  assert(lock:held())
  note(self, "leaves")
  assert(lock:release())
end

local function turn(self, kind, opts)
  local lock, message, code = self.rwlocks[math.random(#self.rwlocks)][kind](self, opts)
  if lock then return inside(self, kind, lock) end
  if not EXPECTED[code] then error(message) end
  note(self, "refused")
end

--- Walks until the spec sends something. Then it acquires once more to read and once to write, without contention.
-- `rwlocks`: the functions `read` and `write` of each, called with any receiver and acquire's options. `may_be_robbed`:
-- the broker may delete a holder's queue when another client dies; the holder notices when it downgrades.
function walker.walk(spec, rwlocks, path, seat, pid, pause, seed, may_be_robbed)
  math.randomseed(seed)
  local self = { rwlocks = rwlocks, log = assert(io.open(path, "a")), seat = seat, pid = pid, pause = pause,
    may_be_robbed = may_be_robbed }
  while not socket.select({ spec }, nil, 0)[spec] do
    turn(self, math.random() < 0.35 and "write" or "read", options())
    if math.random() < 0.3 then linger(self) end
  end
  for _, kind in ipairs{ "read", "write" } do turn(self, kind, { timeout = 60 }) end
  return true
end

--- The locks of a connection, one for each API.
function walker.locks(conn, name)
  local all = {}
  for i, probe in ipairs{ "auto", "publish", "passive" } do
    local rwlock = conn:rwlock(name, { probe = probe })
    all[i] = {
      read = function(_, opts) return rwlock:read(opts) end,
      write = function(_, opts) return rwlock:write(opts) end,
    }
  end
  return all
end

--- Locks that exclude nothing, to check that the log would show it.
function walker.no_locks()
  local lock = {}
  for _, method in ipairs{ "held", "downgrade", "release" } do lock[method] = function() return true end end
  local function take() return lock end
  return { { read = take, write = take } }
end

return walker
