-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A crowd: many sessions that want one lock, in a process of their own with cqueues, on a broker of their own. One of
-- them holds the lock, and the others wait.
--
--     local crowd = require "tools.bench.parts.crowd"
--     local client, server, frames, heartbeats, few, many = crowd.measure("mutex", 1000, 150)
--
-- 1000 sessions, 150 hand-overs. `client`, `server`: resident KiB for each session. `frames`, `heartbeats`: of one
-- session in a minute, in both directions. `few`, `many`: seconds for each hand-over while 16 sessions want the lock,
-- and while all do.
local amqplocks = require "amqplocks"
local bare = require "bare"
local broker = require "spec.support.broker"
local process = require "spec.support.process"
local proxy = require "spec.support.proxy"
local values = require "spec.support.programs.values"

local crowd = {}

local NAME = "crowd"
local FEW = 16
local WATCHED = 8 -- sessions whose frames are counted
local AT_ONCE = 20 -- sessions that connect at a time
local REST = 10 -- seconds in which frames are counted
local SETTLED = 3 -- seconds after which broker and client have freed what connecting took

function crowd.measure(kind, most, times)
  local node = broker.start()
  local pid = node:ask("os:getpid()."):match "%d+"
  local found = values.pack(process.start{ AMQP_URL = node.url }
    :begin("return require('tools.bench.parts.crowd').run(...)", kind, most, times, pid):finish(3600))
  process.clear()
  node:remove()
  return values.unpack(found, 1, found.n)
end

-- In its process -----------------------------------------------------------------------------------------------------

local function await(condition)
  local cqueues = require "cqueues"
  while not condition() do cqueues.sleep(0.02) end
end

-- A session that acquires and releases for ever. The one that has the lock as the goal is reached keeps it until the
-- next round.
local function live(self, url)
  local conn = assert(amqplocks.connect(url, { driver = "cqueues", timeout = 60 }))
  local object, is_there = conn[self.kind](conn, NAME), false
  local function arrive()
    if not is_there then self.there = self.there + 1 end
    is_there = true
  end
  while true do
    local lock = assert(object:acquire{ on_wait = arrive, patient = true })
    arrive()
    self.served = self.served + 1
    if self.served == self.goal then
      self.reached = bare.now()
      self.more:wait()
    end
    assert(lock:release())
  end
end

local function join(self, count, url)
  for _ = 1, count do
    await(function() return self.sessions - self.there <= AT_ONCE end)
    self.sessions = self.sessions + 1
    self.loop:wrap(live, self, url)
  end
  await(function() return self.there == self.sessions end)
end

local function resident(pid)
  return tonumber(process.contents(("/proc/%s/status"):format(pid)):match "VmRSS:%s*(%d+)")
end

-- Of this process and the broker, in KiB.
local function memory(self)
  require("cqueues").sleep(SETTLED)
  collectgarbage()
  collectgarbage()
  return resident "self", resident(self.broker)
end

-- Seconds for each of so many hand-overs, one after the other.
local function hand_over(self, times)
  local start = bare.now()
  self.goal = self.served + times
  self.more:signal()
  await(function() return self.served == self.goal end)
  return (self.reached - start) / times
end

local function observe(self, most, times)
  local between = proxy.start()
  join(self, 1)
  join(self, FEW - 1)
  local few = hand_over(self, times)
  local client, server = memory(self)
  join(self, WATCHED, between.url)
  join(self, most - self.sessions)
  local client_now, server_now = memory(self)
  local frames, heartbeats = between:frames()
  require("cqueues").sleep(REST)
  local frames_now, heartbeats_now = between:frames()
  local many, each_minute = hand_over(self, times), 60 / REST / WATCHED
  return (client_now - client) / (most - FEW), (server_now - server) / (most - FEW),
    (frames_now - frames) * each_minute, (heartbeats_now - heartbeats) * each_minute, few, many
end

function crowd.run(kind, most, times, pid)
  local loop, conn, found = require("cqueues").new(), assert(amqplocks.connect()), nil
  if kind == "semaphore" then assert(conn:admin(NAME):create(1)) end
  if kind == "token_semaphore" then assert(conn:token_semaphore(NAME):create(1)) end
  conn:close()
  local self = { kind = kind, loop = loop, broker = pid, more = require("cqueues.condition").new(),
    sessions = 0, there = 0, served = 0, goal = 1 }
  loop:wrap(function() found = values.pack(observe(self, most, times)) end)
  while not found do assert(loop:step()) end
  process.clear()
  return values.unpack(found, 1, found.n)
end

return crowd
