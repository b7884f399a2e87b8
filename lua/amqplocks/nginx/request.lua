-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Connections of a request of nginx. They end with the request, however it ends, and their locks with them.
--
-- By default a request has a holder connection of its own, on a cosocket that is closed with the request. Only the
-- request may read that cosocket, so its waiting light threads read it. The worker passes on the answers of its prober.
-- With `shared` a request uses the worker's holder connection: its threads only wait, and the worker releases the locks
-- that the request leaves.
local await = require "amqplocks.waiting.await"
local close_session = require "amqplocks.waiting.close"
local core = require "amqplocks.core"
local endings = require "amqplocks.nginx.endings"
local events = require "amqplocks.nginx.events"
local kept = require "amqplocks.nginx.kept"
local links = require "amqplocks.nginx.links"
local losses = require "amqplocks.waiting.losses"
local may_wait = require "amqplocks.waiting.may_wait"
local protected = require "amqplocks.compat.pcall"
local release = require "amqplocks.waiting.release"
local stream = require "amqplocks.drivers.stream"
local waiting = require "amqplocks.waiting.sleepers"

local may_return, pcall = protected.may_return, protected.pcall

local LONGEST = 1 -- seconds between checks that a thread still reads: a killed light thread sends no notice

local request = {}

-- The state of the current request, until it ends. It keeps the request's locks alive, also those without a reference.
local function bind(worker, locks, finish)
  local state = { request = endings.request(), locks = locks }
  state.settle = worker.endings:expect(function()
    state.over = state.over or "the request that opened it is over"
    if locks.events then
      pcall(locks.close, locks) -- a loss that the worker knows of is told as one
      locks.events:end_all()
    end
    finish()
    if locks.events then locks.events:tell() end
    worker.driver.mind()
  end)
  return state
end

local CLOSED = "the connection was closed; open another"

-- Returns nil if the current request may wait here, otherwise why not, and the code.
local function check(state)
  if state.over then return state.over, "closed" end
  local wrong, code = may_wait(events)
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

-- Closes the socket of a connection that has ended, unless another thread uses it, which then does that. Does not wait.
local function close_socket(self)
  local is_used = may_return(self.leader) or may_return(self.writer)
  if not is_used and not self.holder:is_up() then self.holder:close() end
end

local function write(self)
  if may_return(self.writer) then return end
  self.writer = coroutine.running()
  self.holder:write()
  self.writer = nil
  close_socket(self)
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

local function holder_of(session, settings) return stream.new(events, session, "holder", settings) end

-- The credentials that a URL function returns are those of the session, and so a part of its address.
local function address_of(settings)
  local url = settings.url or ""
  return type(url) == "table" and table.concat(url, "\1") or url
end

-- Returns the session of a connection that was kept, and its stream; nil if the connection was closed meanwhile.
local function resume(one, settings)
  local session = one.session
  local holder = holder_of(session, settings)
  if not holder:resume(one.socket) then
    links.abort(session)
    return nil
  end
  session:resume()
  session:pump()
  for _ in session.news, session do end -- they are of requests before
  return session, holder
end

-- Returns a session and its stream: of a connection that was kept, or new ones. If the one that was kept is closed, no
-- other is tried: all may be closed, and each try takes nginx a connection that nobody waits for. Where nothing can
-- wait, none is tried.
local function begin(worker, settings, address)
  local one = not may_wait(events) and kept.take(worker, address)
  if one then
    local session, holder = resume(one, settings)
    if session then return session, holder end
  end
  settings.lender = worker.session
  local session, message, code = core.loop(settings)
  if not session then return nil, message, code end
  return session, holder_of(session, settings)
end

-- Empties the session. Returns true if its connection may be kept.
local function rest(driver, session)
  return await(driver, nil, function()
    local resting, message, code = session:rest()
    driver.losses:close()
    return resting, message, code
  end)
end

-- Returns for how many seconds the connection may be kept; nil: it must be closed. Another thread must not use it.
local function time_to_keep(self)
  local is_used = may_return(self.leader) or may_return(self.writer)
  local is_up = self.holder:is_up() and not self.session:is_unsent "holder"
  return is_up and not is_used and kept.time(self.session, self.worker) or nil
end

-- Keeps the connection for later requests, if nothing is against it. Otherwise it is still to be closed.
local function keep(self, driver, address)
  local session = self.session
  if check(self.state) or not time_to_keep(self) then return false end
  driver.catch_up()
  local fine, rests, _, code = pcall(rest, driver, session)
  local seconds = fine and rests and time_to_keep(self)
  local socket = seconds and self.holder:keep(seconds + kept.SPARE)
  if socket then
    kept.add(session, socket, self.worker, address, seconds)
    return true
  end
  session:resume()
  local has_failed = code == "unreachable" or not self.holder:is_up() -- closing would only wait again
  if has_failed then session:abort() end
  return false
end

local OWN = { "holder" } -- the prober is the worker's

-- `address`: of the requests to which the connection is left when it is closed; nil: it is closed.
local function own(worker, session, holder, address)
  local self = {
    session = session, holder = holder, worker = worker,
    followers = waiting.new(events, function() return true end),
  }
  links.add(session, OWN)
  local locks = losses.new(function() return session:alerts() end, true)
  local state = bind(worker, locks, function() links.abort(session) end)
  self.state = state
  local driver = {
    opens_late = true,
    check = function() return check(state) end,
    wait = function(operation, most) return wait(self, operation, most) end,
    mind = function()
      if not check(state) then move(self) end
    end,
    close = function(driver)
      local is_kept = address and keep(self, driver, address)
      if not is_kept then
        close_session(driver, session)
        links.abort(session)
        if endings.request() == state.request then close_socket(self) end
      end
      state.over, state.locks = CLOSED, nil
      state.settle()
      if is_kept then pcall(locks.tell, locks) end
    end,
    drain = function() move(self) end,
    catch_up = function()
      if not check(state) then catch_up(self, locks) end
    end,
    news = function() -- after the end of this request the session may be another one's
      if not state.over then return session:news() end
    end,
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
    for _, lock in ipairs(locks:watched()) do lock._core:let_go() end
  end)
  local driver = {
    opens_late = true,
    is_shared = true,
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
      release.close(locks:watched())
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
  local address = address_of(settings)
  local session, holder, code = begin(worker, settings, address)
  if not session then return nil, holder, code end
  return own(worker, session, holder, address)
end

--- Closes a connection that was kept. To be called in a timer, which owns its socket meanwhile.
function request.close_kept(worker, one, settings)
  local session, holder = resume(one, settings)
  if not session then return end
  local _, driver = own(worker, session, holder)
  driver:close()
end

return request
