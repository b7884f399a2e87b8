-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Connections of a request of nginx's. They end with it, however it ends, and with them the locks.
--
-- By default a request has a holder of its own, on a cosocket that dies with it. Nobody else may read that one, so it
-- is read by whoever waits; what comes from the worker's prober he is told by the worker. Who shares the worker's
-- holder only waits, and the worker lets go of what he leaves.
local close_session = require "amqplocks.waiting.close"
local core = require "amqplocks.core"
local endings = require "amqplocks.nginx.endings"
local events = require "amqplocks.nginx.events"
local losses = require "amqplocks.waiting.losses"
local may_return = require("amqplocks.compat.pcall").may_return
local stream = require "amqplocks.drivers.stream"
local waiting = require "amqplocks.waiting.sleepers"

local LONGEST = 1 -- seconds without a look at who reads: nobody is told when a light thread is killed

local request = {}

-- What belongs to the request we are in, until it is over: its locks, too, whether or not anybody refers to them.
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

-- May the request we are in wait here?
local function check(state)
  if state.over then return state.over, "closed" end
  local wrong, code = events.check()
  if wrong then return wrong, code end
  if endings.request() ~= state.request then return "it was opened by another request", "closed" end
end

-- ---- with a holder of its own ---------------------------------------------------------------------------------------

-- Reads for everybody in this request, and minds the session's time, which nobody else does.
local function lead(self, left, most)
  local holder, patience = self.holder, left
  left = waiting.least(left, self.session:wake())
  self.leader = coroutine.running()
  if self.session:due "holder" then
    holder:open(patience)
  elseif holder:is_up() then
    holder:read(waiting.least(left, most))
  else
    ngx.sleep(math.max(0.001, waiting.least(left, most) or 1)) -- until it may be tried again; nginx warns of 0
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
    self.followers:call() -- another one leads from here on
  end
  move(self, operation)
end

-- While nobody waited nobody has read: a lock that is let go of may be lost already. To look takes up to a millisecond,
-- nginx's least; so only if somebody is to be told.
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

-- ---- with the worker's ----------------------------------------------------------------------------------------------

local function share(worker)
  local session, common = worker.session, worker.driver
  local begun = {} -- operations not given back: the collector may let them lie when nobody waits for them any more
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
      begun[operation] = true -- also when it is done: who waited may never come to fetch what it gives
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
      state.over = CLOSED -- what another thread of the request has got meanwhile goes with the request
    end,
    news = function() end, -- what is told of the worker's connections the worker logs
    losses = locks,
  }
  return session, driver
end

--- A session over `settings` for the request we are in, and what waits for its operations.
function request.session(worker, settings, shared)
  if shared then return share(worker) end
  return own(worker, settings)
end

return request
