-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Finds the lost locks of a connection, and calls the function of on_lost once for each of them.
--
-- The core only counts the events of locks. When its count has changed, the locks that still exist are asked one by
-- one. A loss is noted, and the lock is not watched any more. So the loss is reported once, whether the owner then
-- keeps the lock, releases it or closes the connection. Each of these notes a loss that it finds, too. A lock that was
-- released before is no loss.
--
-- The function may wait for this connection, unregister itself, release, close the connection, or raise an error. Until
-- it has returned it is not called again: neither by calls inside it, nor by other coroutines while it yields. These
-- only note losses and return. The call that called the function reports these next. If the coroutine of that call is
-- closed, killed or collected instead, the next call that waits reports them. The same holds for losses that an error
-- left unreported. After close no call waits, so errors are ignored then.
local plain_pcall = pcall
local protected = require "amqplocks.compat.pcall"
local may_return, pcall = protected.may_return, protected.pcall

local losses = {}
losses.__index = losses

--- `count` returns the number of events of locks so far. `keeps`: a lock without other references stays alive, and
-- held, until forget() is called for it.
function losses.new(count, keeps)
  return setmetatable({
    _count = count,
    _watched = keeps and {} or setmetatable({}, { __mode = "k" }),
    _lost = {}, -- noted, not reported yet: { lock =, message = }, in order
    _seen = 0,  -- the count at the last check for losses; nil: check again
    _teller = setmetatable({}, { __mode = "v" }), -- [1]: the coroutine that reports now; it may be collected
  }, losses)
end

--- Sets the function to call; nil: none. Losses that were noted are then watched again, for the next function.
function losses:on(fn)
  self._fn = fn
  self._seen = nil
  if fn then return end
  for _, loss in ipairs(self._lost) do self._watched[loss.lock] = "watched" end
  self._lost = {}
end

--- From now on the events of locks are reported to `events`, too (events.lua).
function losses:report_to(events)
  self.events = events
  self._seen = nil
end

--- Returns whether losses are reported to anybody.
function losses:are_told() return self._fn ~= nil or self.events ~= nil end

--- Returns the number of events of locks after which nothing is left to be done; nil: something is.
function losses:settled() return #self._lost == 0 and self._seen or nil end

--- Adds a lock that was acquired, and that its caller does not have yet. Its loss is not reported.
function losses:expect(lock) self._watched[lock] = "expected" end

--- Watches a lock: its caller has it now.
function losses:watch(lock) self._watched[lock] = "watched" end

--- Returns the locks that are watched or expected, as a list.
function losses:watched()
  local locks = {}
  for lock in pairs(self._watched) do table.insert(locks, lock) end
  return locks
end

--- Counts a lock as lost, whatever the core knows of it.
function losses:add(lock, message)
  if not self._closed and self._fn then table.insert(self._lost, { lock = lock, message = message }) end
  if self.events then self.events:ended(lock, "lost", "lost") end
  self._watched[lock] = nil
end

local function note(self, lock)
  local message = lock:_loss()
  if message then self:add(lock, message) end
end

--- The owner has released the lock. A loss before that is still reported. Without memory to note it, the lock is
-- watched further.
function losses:forget(lock)
  local is_told = self._watched[lock] == "watched" and self:are_told() and not self._closed
  if is_told and not plain_pcall(note, self, lock) then
    self._seen = nil
  else
    self._watched[lock] = nil
  end
end

local function look(self)
  local count = self._count()
  if self._closed or self._seen == count then return end
  for lock, how in pairs(self:are_told() and self._watched or {}) do
    if how == "watched" then
      if self.events and lock:revoked() then self.events:revoked(lock) end
      note(self, lock)
    end
  end
  self._seen = count
end

--- Checks for losses a last time, before the session closes: losses after that come from the close itself.
function losses:close()
  look(self)
  self._closed = true
end

local function call(self, loss)
  if self._closed then
    pcall(self._fn, loss.lock, "lost", loss.message)
  else
    self._fn(loss.lock, "lost", loss.message)
  end
end

local function tell_all(self)
  look(self)
  while self._fn and #self._lost > 0 do
    call(self, table.remove(self._lost, 1))
    look(self)
  end
end

--- Reports all losses. If another call is reporting already, losses found here are only noted, and that call reports
-- them.
function losses:tell()
  local teller = self._teller
  if may_return(teller[1]) then return look(self) end
  teller[1] = coroutine.running() or true
  local fine, problem = pcall(tell_all, self)
  if not fine and self._closed then pcall(tell_all, self) end -- closed meanwhile, by a close that did not report
  teller[1] = nil
  if not fine then error(problem, 0) end
end

return losses
