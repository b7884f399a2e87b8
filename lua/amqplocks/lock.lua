-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A held lock. It lives on its connection. This object owns it: when the object is collected, the lock is released.
local await = require "amqplocks.waiting.await"
local guard = require "amqplocks.waiting.guard"
local methods = require "amqplocks.methods"
local news = require "amqplocks.waiting.notify"
local pcall = require("amqplocks.compat.pcall").pcall
local lock = {}
local type = type -- held(), revoked(), certain_for() and release() are called very often

---@class amqplocks.Lock
---@field kind "slot"|"mutex"|"permit"|"read"|"write"|"fast_mutex" the kind of lock
---@field name string of the semaphore, mutex or readers–writer lock
---@field slot integer|nil the slot of a persistent semaphore
---@field ticket string 16 hexadecimal digits, different for every lock ever taken
---@field fence integer|nil the fencing token, of a lock that was acquired with `fenced`: larger than every earlier one;
---  of every permit of a quorum queue, unless other software made the permit
---@field permit string|nil of a permit with a fencing token: its id. The token is larger than those of the permit's
---  earlier holders; with one permit, larger than every earlier one
---@field acquired_at number seconds since the epoch, by this machine's clock
local Lock = {}
local metatable = { __index = Lock, __name = "amqplocks.lock" }

function metatable.__tostring(self)
  local held, _, code = self._core:held()
  local what = self.slot and ("slot %d"):format(self.slot) or self.kind
  return ('amqplocks.lock ("%s", %s, %s)'):format(self.name, what, held and "held" or code)
end

--- Returns whether the lock is still held, as far as this process knows without asking the broker. No I/O.
---@return boolean held, string? message, amqplocks.Code? code "suspect", "lost", "not_held" or "forked"
function Lock:held()
  if type(self) ~= "table" or self._class ~= Lock then methods.misused("lock", "held") end
  return self._core:held()
end

--- Returns for how many seconds the lock is certain to be held, should no more answer of the broker arrive. While the
-- broker answers, that is about two heartbeats, again and again. 0: held() returns false. No I/O.
---@return number seconds
function Lock:certain_for()
  if type(self) ~= "table" or self._class ~= Lock then methods.misused("lock", "certain_for") end
  return self._core:certain_for()
end

--- Returns whether an administrator has asked the holder to release. The lock stays held until it is released. A holder
-- should release as soon as it can after true. Once true, it stays true. No I/O: while the program computes, the
-- connection's own thread receives the request.
--
--     while lock:held() and not lock:revoked() and work_is_left() do work_a_little() end
---@return boolean revoked
function Lock:revoked()
  if type(self) ~= "table" or self._class ~= Lock then methods.misused("lock", "revoked") end
  return self._core:revoked()
end

--- For the reports of losses: the message of held() for a lock that was lost, also after its release. nil: it was not
-- lost, or it was released before.
---@return string? message
function Lock:_loss() return self._core:loss() end

local function ask(self, method, settled)
  return await(self._connection._driver, nil, self._core[method], self._core, settled)
end

local ROUNDS = 3

--- Asks the broker whether the lock is held (docs/specification.md, 2.4). It takes one round trip, or some more if an
-- answer is so late that it proves nothing. It also asks again if this coroutine gets the answer late, after others.
---@return true|nil, string? message, amqplocks.Code? code "lost", "removed" (still held: release it), "not_held",
---  "unreachable", "suspect" (late each time)
function Lock:verify()
  local held, message, code
  for _ = 1, ROUNDS do
    local verified, problem, why = ask(self, "verify")
    if not verified and why ~= "removed" then return nil, problem, why end
    held, message, code = self:held()
    if held then return verified, problem, why end
  end
  return nil, message, code
end

--- Releases the lock (docs/specification.md, 2.5) and waits for the broker's confirmation. If the lock is found lost,
-- conn:on_lost's function is called before this returns, unless the loss was reported before. If a call of that
-- function yields in another coroutine, this returns first, and the function is called after that call has returned.
---@return true|nil, string? message, amqplocks.Code? code "not_held" (the second time), "lost", "unreachable"
function Lock:release()
  if type(self) ~= "table" or self._class ~= Lock then methods.misused("lock", "release") end
  local driver = self._connection._driver
  local released, message, code = ask(self, "release", news.settled(driver) or nil)
  if code ~= "phase" and code ~= "closed" then -- the release has begun; in another request it cannot
    self:_ended(released, code)
    if driver.listened then news.tell_events(driver) end
  end
  return released, message, code
end

--- For release.all(): releases the lock by begin(lock, ...), where it can be waited for. Returns what begin() does.
function Lock:_release(begin, ...) return await(self._connection._driver, nil, begin, self, ...) end

--- Its release has begun, and may be confirmed.
function Lock:_ended(released, code)
  local driver = self._connection._driver
  driver.losses:forget(self)
  if released then self._is_released = true end
  if driver.listened then driver.events:ended(self, "released", code) end
end

--- Counts the lock as lost. For a caller that could not prove, at its release, that it was not lost before.
---@param message string
function Lock:_count_as_lost(message)
  local losses = self._connection._driver.losses
  losses:add(self, message)
  losses:tell()
end

--- Releases the lock without waiting, at the end of its scope.
function Lock:_leave()
  local driver = self._connection._driver
  self._core:let_go()
  self:_ended()
  if driver.mind then pcall(driver.mind) end
end

local function learn(self)
  self.ticket, self.acquired_at, self.kind = select(3, self._core:info())
end

--- Turns a write lock into a read lock. No other writer gets the lock in between. Does nothing to a read lock. The lock
-- has another ticket afterwards.
---@return true|nil, string? message, amqplocks.Code? code "lost", "not_held"; "unreachable", "refused", "limit",
---  "suspect" (every answer was handled too late): `lock.kind` tells whether it is still a write lock
function Lock:downgrade()
  if self.kind ~= "write" and self.kind ~= "read" then
    error("downgrade: only a lock that writes can be turned into one that reads, not a " .. self.kind, 0)
  end
  local fine, done, message, code = pcall(guard.unless_closed, learn, ask, self, "downgrade")
  learn(self) -- also when it was interrupted
  if not fine then error(done, 0) end
  if done and not self:held() then return self:verify() end
  return done, message, code
end

-- At the end of its scope: like release, but no error is raised, as it would hide the scope's own. The object can be
-- used further. A coroutine that is being closed cannot wait in a loop: there the lock is released without waiting.
-- After a successful release, as at the end of `with`, it does nothing.
function metatable.__close(self)
  if self._is_released then return end
  pcall(self.release, self)
  self:_leave()
end

local function handed_over(self)
  self._connection._driver.losses:watch(self)
  return true
end

--- The library has acquired it, and will give it to its caller by _hand_over(). Until then its loss is not reported.
function Lock:_withhold() self._connection._driver.losses:expect(self) end

--- Makes sure that the lock is held when its caller gets it. It was held when it was acquired, but the caller runs
-- later, after `on_wait` or other coroutines, and the lock may be lost by then. A lock that is held is handed over even
-- if its slot was removed meanwhile.
---@return true|nil, string? message, amqplocks.Code? code
function Lock:_hand_over()
  if lock.hand_over_at_once(self) then return true end
  local held, message, code = self:verify()
  if held or self:held() then return handed_over(self) end
  if code == "not_held" then return nil, "closed: the connection was closed", "closed" end -- by conn:close()
  return nil, message, code
end

local OFTEN = { held = true, revoked = true, certain_for = true, release = true }
methods.check(Lock, "lock", methods.LOCK, OFTEN)

--- Releases it as at the end of its scope: a lock, or an object that has the methods of one.
function lock.close(self) getmetatable(self).__close(self) end

--- The object for a lock that was acquired. Its caller does not have it yet.
function lock.new(connection, core_lock)
  local slot, name, ticket, acquired_at, kind, fence, permit = core_lock:info()
  local self = setmetatable({
    kind = kind, name = name, slot = slot, ticket = ticket, acquired_at = acquired_at, fence = fence, permit = permit,
    _core = core_lock, _connection = connection, -- the connection must outlive the lock
    _is_released = false,
  }, metatable)
  connection._driver.losses:expect(self)
  return self
end

--- Gives the lock to its caller, if it is held as far as this process knows. Otherwise _hand_over() asks.
---@return boolean
function lock.hand_over_at_once(self) return self._core:held() and handed_over(self) end

return lock
