-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- What a request of nginx has of its worker's connection: its locks, its operations, its losses. They end with the
-- request, however it ends: the worker then releases the locks that the request leaves.
local endings = require "amqplocks.nginx.endings"
local events = require "amqplocks.nginx.events"
local losses = require "amqplocks.waiting.losses"
local may_wait = require "amqplocks.waiting.may_wait"
local release = require "amqplocks.waiting.release"

local pcall = require("amqplocks.compat.pcall").pcall

local request = {}

local CLOSED, OVER = "the connection was closed; open another", "the request that opened it is over"

-- Returns nil if the current request may wait here, otherwise why not, and the code.
local function check(self)
  if self.over then return self.over, "closed" end
  local wrong, code = may_wait(events)
  if wrong then return wrong, code end
  if endings.request() ~= self.request then return "it was opened by another request", "closed" end
end

-- An operation is noted even if it is done: the light thread may never fetch its result.
local function note(self, operation)
  for old in pairs(self.begun) do
    if old:is_given_back() then self.begun[old] = nil end
  end
  self.begun[operation] = true
end

-- A lock that another light thread gets meanwhile is released with the request.
local function close(self)
  for operation in pairs(self.begun) do operation:end_closed() end
  self.common.mind()
  release.close(self.losses:watched())
  pcall(self.losses.close, self.losses)
  pcall(self.losses.tell, self.losses)
  self.over = CLOSED
end

local function leave(self)
  for operation in pairs(self.begun) do
    self.common.forget(operation)
    operation:drop()
  end
  for _, lock in ipairs(self.losses:watched()) do lock._core:let_go() end
end

-- No Lua of the request runs any more.
local function finish(self)
  local told = self.losses.events
  self.over = self.over or OVER
  if told then
    pcall(self.losses.close, self.losses) -- a loss that the worker knows of is told as one
    told:end_all()
  end
  leave(self)
  if told then told:tell() end
  self.common.mind()
end

--- Returns the worker's session for the current request, and the driver that waits for its operations.
function request.session(worker)
  local session, common = worker.session, worker.driver
  local self = {
    request = endings.request(), common = common,
    begun = {}, -- operations that were not freed: the collector may leave those that were abandoned
    losses = losses.new(function() return session:alerts() end, true), -- which keeps locks without a reference alive
  }
  worker.endings:expect(function() finish(self) end)
  return session, {
    is_shared = true,
    check = function() return check(self) end,
    wait = function(operation, most)
      note(self, operation)
      common.wait(operation, most)
    end,
    mind = common.mind,
    drain = common.drain,
    close = function() close(self) end,
    news = function() end, -- the worker logs the news of its connections
    losses = self.losses,
  }
end

return request
