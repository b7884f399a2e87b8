-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A lock held. It belongs to its connection; this object owns it.
local await = require "amqplocks.waiting.await"
local guard = require "amqplocks.waiting.guard"
local memory = require "amqplocks.compat.no_memory"
local methods = require "amqplocks.methods"
local pcall = require("amqplocks.compat.pcall").pcall
local type = type -- held() and revoked() are called very often

---@class amqplocks.Lock
---@field kind "slot"|"mutex"|"permit"|"read"|"write" what is held
---@field name string of the semaphore, mutex or lock
---@field slot integer|nil which slot, of a persistent semaphore
---@field ticket string 16 hexadecimal digits, different for every lock ever taken
---@field acquired_at number seconds since the epoch, by this machine's clock
local Lock = {}
local metatable = { __index = Lock, __name = "amqplocks.lock" }

function metatable.__tostring(self)
  local held, _, code = self._core:held()
  local what = self.slot and ("slot %d"):format(self.slot) or self.kind
  return ('amqplocks.lock ("%s", %s, %s)'):format(self.name, what, held and "held" or code)
end

--- Is it still ours, as far as this process can know without asking? No I/O.
---@return boolean held, string? message, string? code "suspect", "lost", "not_held" or "forked"
function Lock:held()
  if type(self) ~= "table" or self._class ~= Lock then methods.misused("lock", "held") end
  return self._core:held()
end

--- Did an administrator ask for it back? Nobody takes it away: it is held until it is released, which is what a holder
-- that reads true should do as soon as it can. Once true it stays true. No I/O: while the program computes, the
-- connection's own thread takes note of the request.
--
--     while lock:held() and not lock:revoked() and work_is_left() do work_a_little() end
---@return boolean revoked
function Lock:revoked()
  if type(self) ~= "table" or self._class ~= Lock then methods.misused("lock", "revoked") end
  return self._core:revoked()
end

--- For who tells of losses: what held() says of a lock that was lost, also once it was released; nil: it was not, or it
-- was let go of before.
---@return string? message
function Lock:_loss() return self._core:loss() end

local function ask(self, method) return await(self._connection._driver, nil, self._core[method], self._core) end

local ROUNDS = 3

--- Asks the broker ("Verifying a Held Lock"); one round trip, or some more if answers are so late that they prove
-- nothing. Who comes to the answer late, after other coroutines, asks again as well.
---@return true|nil, string? message, string? code "lost", "removed" (still held: release it), "not_held",
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

--- Lets it go ("Relinquishing a Lock") and waits until the broker says so. If it is found lost, conn:on_lost's function
-- is called before this returns, unless that was told before. While a call of that function yields in another
-- coroutine, this returns first, and the function is called when that call has returned.
---@return true|nil, string? message, string? code "not_held" (the second time), "lost", "unreachable"
function Lock:release()
  local driver = self._connection._driver
  if driver.catch_up then driver.catch_up() end
  local released, message, code = ask(self, "release")
  if code ~= "phase" then driver.losses:forget(self) end -- it was begun, and so the lock let go of
  if released then self._is_released = true end
  return released, message, code
end

--- For who could not find out, when it was released, that it was not lost before: it counts as lost.
---@param message string
function Lock:_count_as_lost(message)
  local losses = self._connection._driver.losses
  losses:add(self, message)
  losses:tell()
end

--- For those who end what it belongs to: lets it go without waiting.
function Lock:_let_go() self._core:let_go() end

local function leave(self)
  local driver = self._connection._driver
  driver.losses:forget(self)
  self:_let_go()
  if driver.mind then pcall(driver.mind) end
end

local function learn(self)
  self.ticket, self.acquired_at, self.kind = select(3, self._core:info())
end

--- Turns writing into reading ("write" into "read"), with no gap in which another writer fits; nothing if it reads
-- already. The lock has then another ticket.
---@return true|nil, string? message, string? code "lost", "not_held"; "unreachable", "refused", "limit", "suspect" (who
---  asked came too late to every answer): `lock.kind` tells whether it still writes
function Lock:downgrade()
  if self.kind ~= "write" and self.kind ~= "read" then
    error("downgrade: only a lock that writes can be turned into one that reads, not a " .. self.kind, 0)
  end
  local fine, done, message, code = pcall(guard.unless_closed, learn, ask, self, "downgrade")
  local knows = pcall(learn, self) -- also when it was interrupted
  if not fine then return memory.results(false, done) end
  if not knows then return memory.none() end -- it can be asked for again: what reads already stays as it is
  if done and not self:held() then return self:verify() end
  return done, message, code
end

-- At the end of its scope: like release, but errors are not thrown, as they would hide the scope's own. Whoever kept
-- the lock may go on asking it. In a coroutine that is being closed nothing can wait in a loop: then it is let go of
-- without waiting. After a release that has succeeded, as at the end of `with`, there is nothing left to do.
function metatable.__close(self)
  if self._is_released then return end
  pcall(self.release, self)
  leave(self)
end

methods.check(Lock, "lock", { held = true, revoked = true })

local lock = {}

--- A lock that was had, for somebody who does not know it yet.
function lock.new(connection, core_lock)
  local slot, name, ticket, acquired_at, kind = core_lock:info()
  local self = setmetatable({
    kind = kind, name = name, slot = slot, ticket = ticket, acquired_at = acquired_at,
    _core = core_lock, _connection = connection, -- the connection must outlive the lock
    _is_released = false,
  }, metatable)
  connection._driver.losses:expect(self)
  return self
end

--- It was certain when it was had. Whoever waited comes to it in his turn, after `on_wait` or other coroutines, and it
-- may be lost by then. What is held is his, even if its slot was removed meanwhile. If his coroutine is closed while
-- that is asked, it is nobody's.
---@return true|nil, string? message, string? code
function lock.hand_over(self)
  local held, message, code = self:held()
  if not held then
    held, message, code = guard.unless_closed(leave, self.verify, self)
    held = held or self:held()
  end
  if held then
    self._connection._driver.losses:watch(self)
    return true
  end
  if code == "not_held" then return nil, "closed: the connection was closed", "closed" end -- as nobody else could
  return nil, message, code
end

return lock
