-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- One call that may wait. Its owner waits by the connection's driver. It has the methods of the core's operations.
local operation = {}
operation.__index = operation
operation.priority = 0

local unpack = table.unpack or rawget(_G, "unpack")

--- `entry`: what the world's log has of it. `step` is called with the operation to look whether it can end.
function operation.new(session, entry, step)
  local broker = session.broker
  local self = setmetatable({ session = session, broker = broker, step = step, begun_at = broker.timeline.now }, {
    __index = operation, __close = function(it) it:drop() end,
  })
  self.entry = broker:note(session, entry)
  broker.timeline:add(self)
  return self
end

local function close(self, result)
  self.is_done, self._result = true, result
  self.broker.timeline:remove(self)
  if self.on_end then self:on_end() end
end

--- Ends it with results.
function operation:finish(...)
  self.entry.result = "ok"
  close(self, { n = select("#", ...), ... })
end

--- Ends it with a code and words.
function operation:fail(code, words)
  self.entry.result = code
  self.code = code
  close(self, { n = 3, nil, code .. ": " .. words, code })
end

--- Ends it if the test wants that: world:fail().
---@return boolean
function operation:is_spoilt()
  local code = self.broker:next_failure()
  if code then self:fail(code, "world:fail() wants it") end
  return code ~= nil
end

--- Looks whether it can end.
function operation:look()
  if self.is_done then return end
  if self.session.is_closed then return self:fail("closed", "the connection was closed") end
  self:step()
  if not self.is_done and self.deadline and self.broker.timeline.now >= self.deadline then self:expire() end
end

--- Its time is over.
function operation:expire() self:fail("timeout", self.reason or "it took too long") end

--- Nothing that is planned can end it.
function operation:despair()
  local words = ("%s %s would wait for ever: %s, and nothing is planned that could change it"):format(self.entry.what,
    self.entry.words, self.reason)
  self:drop()
  error(words, 0)
end

-- ---- what the module calls ------------------------------------------------------------------------------------------

function operation:done() return self.is_done or false end

function operation:result() return unpack(self._result, 1, self._result.n) end

--- Seconds and the reason, while it waits for others.
function operation:waiting()
  if self.is_done or not self.waits_since then return end
  return self.broker.timeline.now - self.waits_since, self.reason
end

--- Its owner waits no more.
function operation:drop()
  if not self.is_done then self:fail("closed", "it was abandoned") end
end

return operation
