-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Connections of a request of nginx. They end with the request, however it ends, and their locks with them.
--
-- By default a request has a holder connection of its own, on a cosocket that is closed with the request. Only the
-- request may read that cosocket, so its waiting light threads read it. The worker passes on the answers of its prober.
-- With `shared` a request uses the worker's holder connection: its threads only wait, and the worker releases the locks
-- that the request leaves.
local close_session = require "amqplocks.waiting.close"
local core = require "amqplocks.core"
local endings = require "amqplocks.nginx.endings"
local events = require "amqplocks.nginx.events"
local losses = require "amqplocks.waiting.losses"
local may_return = require("amqplocks.compat.pcall").may_return
local stream = require "amqplocks.drivers.stream"
local waiting = require "amqplocks.waiting.sleepers"

local LONGEST = 1 -- seconds between checks that a thread still reads: a killed light thread sends no notice

local request = {}

-- The state of the current request, until it ends. It keeps the request's locks alive, also those without a reference.
local function bind(worker, locks, finish)
  local state = { request = endings.request(), locks = locks }
  state.settle = worker.endings:expect(function()
    state.over = state.over or "the request that opened it is over"
    finish()
    worker.driver.mind()
  end)
  return state
end

local CLOSED = "the connection was closed; open another"

-- Returns nil if the current request may wait here, otherwise why not, and the code.
local function check(state)
  if state.over then return state.over, "closed" end
  local wrong, code = events.check()
  if wrong then return wrong, code end
  if endings.request() ~= state.request then return "it was opened by another request", "closed" end
end

-- ---- with a holder of its own ---------------------------------------------------------------------------------------

-- Reads for all threads of this request, and serves the timers of its session.
local function lead(self, left, most)
  local holder, patience = self.holder, left
  left = waiting.least(left, self.session:wake())
  self.leader = coroutine.running()
  if self.session:due "holder" then
    holder:open(patience)
  elseif holder:is_up() then
    holder:read(waiting.least(left, most))
  else
    ngx.sleep(math.max(0.001, waiting.least(left, most) or 1)) -- until the next attempt; nginx warns of 0
  end
  self.leader = nil
end

local function write(self)
  if may_return(self.writer) then return end
  self.writer = coroutine.running()
  self.holder:write()
  self.writer = nil
  if not self.holder:is_up() and not may_return(self.leader) then self.holder:close() end
end

local function move(self, operation)
  local left = self.session:pump(operation)
  self.worker.driver.mind()
  write(self)
  return left
end

local function wait(self, operation, most)
  local left = move(self, operation)
  if operation:done() then return end
  if operation:awaits() == "prober" then
    self.worker.askers:wait(operation, left, most)
  elseif may_return(self.leader) then
    self.followers:wait(operation, waiting.least(left, LONGEST), most)
  else
    lead(self, left, most)
    self.followers:call() -- another thread leads now
  end
  move(self, operation)
end

-- While no thread waits, no thread reads: a lock that is released may be lost already. Reading takes up to a
-- millisecond, nginx's shortest time. So it is done only if losses are reported.
local function catch_up(self, locks)
  if not locks:are_told() or may_return(self.leader) or not self.holder:is_up() then return end
  self.leader = coroutine.running()
  self.holder:read(0)
  self.leader = nil
  move(self)
  self.followers:call()
end

local function own(worker, settings)
  settings.lender = worker.session
  local session, message, code = core.loop(settings)
  if not session then return nil, message, code end
  local self = { session = session, worker = worker, followers = waiting.new(events, function() return true end) }
  self.holder = stream.new(events, session, "holder", settings)
  local locks = losses.new(function() return session:alerts() end, true)
  local state = bind(worker, locks, function() session:abort() end)
  local driver = {
    opens_late = true,
    check = function() return check(state) end,
    wait = function(operation, most) return wait(self, operation, most) end,
    mind = function()
      if not check(state) then move(self) end
    end,
    close = function(driver)
      close_session(driver, session)
      state.over, state.locks = CLOSED, nil
      state.settle()
    end,
    drain = function() move(self) end,
    catch_up = function()
      if not check(state) then catch_up(self, locks) end
    end,
    news = function() return session:news() end,
    losses = locks,
  }
  return session, driver
end

-- ---- with the worker's holder ---------------------------------------------------------------------------------------

local function share(worker)
  local session, common = worker.session, worker.driver
  local begun = {} -- operations that were not freed: the collector may leave those that were abandoned
  local locks = losses.new(function() return session:alerts() end, true)
  local state = bind(worker, locks, function()
    for operation in pairs(begun) do
      common.forget(operation)
      operation:drop()
    end
    for _, lock in ipairs(locks:watched()) do lock:_let_go() end
  end)
  local driver = {
    opens_late = true,
    check = function() return check(state) end,
    wait = function(operation, most)
      for old in pairs(begun) do
        if old:is_given_back() then begun[old] = nil end
      end
      begun[operation] = true -- also if it is done: the thread may never fetch its result
      common.wait(operation, most)
    end,
    mind = common.mind,
    drain = common.drain,
    close = function()
      for operation in pairs(begun) do operation:end_closed() end
      common.mind()
      for _, lock in ipairs(locks:watched()) do pcall(lock.release, lock) end
      pcall(locks.close, locks)
      pcall(locks.tell, locks)
      state.over = CLOSED -- a lock that another thread got meanwhile is released with the request
    end,
    news = function() end, -- the worker logs the news of its connections
    losses = locks,
  }
  return session, driver
end

--- Returns a session over `settings` for the current request, and the driver that waits for its operations.
function request.session(worker, settings, shared)
  if shared then return share(worker) end
  return own(worker, settings)
end

return request
