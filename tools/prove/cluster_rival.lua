-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A process that competes for a lock while nodes of a cluster fail. It records when held() was true: from the end of
-- the acquire that got the lock to the beginning of the last check that returned true. So if two processes' lists
-- overlap, the locks did overlap, by their common clock.
--
-- Its report to the runner is lines of words, in the order of events:
--     held FROM TO SLOT WHY TOKEN
--                                from when to when held() was true; then its code WHY, or the lock was released; its
--                                fencing token, or 0
--     none CODE COUNT            failed acquires
--     over SECONDS               by how much an acquire exceeded its timeout, at most
--     asked CODE FROM TO SLOT    the result of verify() before the release: "held", or a code; when the lock was
--                                acquired, and when verify() was called
--     let SECONDS CODE           how long a release took, and its result ("free", or a code)
local amqplocks = require "amqplocks"
local kinds = require "tools.prove.cluster_kinds"
local socket = require "socket"
local values = require "spec.support.programs.values"

local rival = {}
rival.__index = rival

local LOOK = 0.002
local NOTED = 0.05 -- seconds between lines of a lock that is held on, in a file

--- How long a rival waits for an answer, in seconds.
rival.TIMEOUT = 5

--- `about`: url, kind, name, heartbeat, timeout (of an acquire), poll; path: a file for the report, which is there
-- after a SIGKILL, too.
function rival.new(spec, cpath, about)
  package.cpath = cpath .. package.cpath
  about.file = about.path and assert(io.open(about.path, "a"))
  if about.file then about.file:setvbuf "no" end
  about.spec, about.clock, about.lines, about.none, about.over = spec, require "clock", {}, {}, 0
  return setmetatable(about, rival)
end

function rival:is_over() return socket.select({ self.spec }, nil, 0)[self.spec] ~= nil end

function rival:write(...)
  local line = (...):format(select(2, ...))
  if self.file then self.file:write(line, "\n") else table.insert(self.lines, line) end
end

function rival:held(from, to, lock, why)
  self:write("held %.6f %.6f %s %s %.0f", from, to, lock.slot or 1, why, lock.fence or 0)
end

function rival:connect()
  while not self.conn and not self:is_over() do
    local conn, _, code = amqplocks.connect(self.url, { heartbeat = self.heartbeat, timeout = rival.TIMEOUT })
    self.conn = conn
    if not conn then
      self.none[code] = (self.none[code] or 0) + 1
      socket.sleep(0.2)
    end
  end
  return self.conn
end

function rival:take(timeout)
  local lock = kinds.lock(self.conn, self.kind, self.name)
  local began = self.clock.now()
  local got, message, code = lock(timeout, self.poll)
  self.over = math.max(self.over, self.clock.now() - began - timeout)
  if not got then self.none[code] = (self.none[code] or 0) + 1 end
  return got, message, code
end

--- Keeps it until the runner sends something, or it is lost for good, or so many seconds have passed.
function rival:keep(lock, seconds)
  local began = self.clock.now()
  local from, to, noted = began, nil, began
  local function write(why)
    if to then self:held(from, to, lock, why) end
    from, to = nil, nil
  end
  while not self:is_over() and self.clock.now() - began < (seconds or math.huge) do
    local now = self.clock.now()
    local held, _, code = lock:held()
    if held then from, to = from or now, now else write(code) end
    if held and self.file and now - noted > NOTED then
      self:held(from, to, lock, "still")
      noted = now
    end
    if code == "lost" then return end
    socket.sleep(LOOK)
  end
  write "told"
  self:ask(lock, began)
  self:let(lock)
end

function rival:ask(lock, began)
  local now = self.clock.now()
  local held, _, code = lock:verify()
  self:write("asked %s %.6f %.6f %s", held and "held" or code, began, now, lock.slot or 1)
end

function rival:let(lock)
  local began = self.clock.now()
  local done, _, code = lock:release()
  self:write("let %.3f %s", self.clock.now() - began, done and "free" or code)
end

function rival:report()
  for code, count in pairs(self.none) do self:write("none %s %d", code, count) end
  self:write("over %.3f", self.over)
  if self.conn then self.conn:close() end
  return table.concat(self.lines, "\n")
end

--- Acquires it, reports that, and keeps it.
function rival:hold()
  self:connect()
  local lock = assert(self:take(30))
  self.spec:send(values.message(true))
  self:keep(lock)
  return self:report()
end

--- Tries until it has acquired it, keeps it until it is lost, and tries again.
function rival:compete()
  self.spec:send(values.message(true))
  while not self:is_over() and self:connect() do
    local lock, _, code = self:take(self.timeout)
    if lock then self:keep(lock) elseif code ~= "timeout" then socket.sleep(0.1) end
  end
  return self:report()
end

--- Acquires it, and keeps it for a moment or for long, over and over.
function rival:use()
  math.randomseed(math.floor(self.clock.now() * 1e6) % 2 ^ 31)
  self.spec:send(values.message(true))
  while not self:is_over() and self:connect() do
    local lock, _, code = self:take(math.random() < 0.1 and 0 or self.timeout)
    if lock then
      self:keep(lock, math.random() < 0.5 and 5 + 35 * math.random() or 0.8 * math.random())
    elseif code ~= "timeout" then
      socket.sleep(0.5)
    end
  end
  return self:report()
end

--- Acquires and releases it, over and over; reports how often, and the longest time of an acquire.
function rival:hand_on()
  self.spec:send(values.message(true))
  while not self:is_over() and self:connect() do
    local lock, _, none = self:take(self.timeout)
    if not lock and none ~= "timeout" then socket.sleep(0.05) end
    if lock then
      local from = self.clock.now()
      socket.sleep(math.random() * 0.01)
      local to = self.clock.now()
      local held, _, code = lock:held()
      self:held(from, held and to or from, lock, held and "released" or code)
      self:let(lock)
    end
  end
  return self:report()
end

return rival
