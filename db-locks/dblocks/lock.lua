-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A lock that was acquired. It stays in the database until it is released, whatever becomes of this object and
-- process.
local acquiring = require "dblocks.acquiring"
local clock = require "dblocks.clock"
local late = require "dblocks.late"
local options = require "dblocks.options"

---@class dblocks.Lock
---@field kind "mutex"|"read"|"write"
---@field type string of the resource
---@field id string of the resource
---@field name string of the holder, as given to the constructor
---@field ticket string under which it is held
---@field acquired_at number seconds since the epoch, by the database's clock
local Lock = {}
local metatable = { __index = Lock, __name = "dblocks.lock" }

function metatable.__tostring(self)
  return ("dblocks.lock (%s, %s, %s)"):format(self._resource.words, self.kind, self.ticket)
end

-- Repeats a step for so long after failures of the connection.
local PATIENCE = 10

local function step(self, verb)
  local wait = self._locks._wait()
  wait.deadline = wait.now() + PATIENCE
  return acquiring.step(self._locks._store, wait, self._resource, verb, self.ticket, self._since,
    self.kind == "read")
end

local NOT_HELD = "not_held: %s was released before, under the ticket %s"
local LOST = "lost: %s is not held under the ticket %s: an operator broke the lock, somebody else released that "
  .. "ticket, or the data is gone"

local function failure(self, message)
  return nil, message:format(self._resource.words, self.ticket), message:match "^[^:]+"
end

-- Whether the lock is held, after ask(self, …).
local function held(self, ask, ...)
  if self._is_released then return failure(self, NOT_HELD) end
  local outcome, message, code = ask(self, ...)
  if outcome == "held" then return true end
  if outcome then return failure(self, LOST) end
  return nil, message, code
end

local function guard(self, connection)
  return self._locks._store:guard(connection, self._resource, self.ticket, self._since)
end

--- Guards a transaction of the caller's: after true this lock cannot end, be broken or be taken over before that
-- transaction ends. Roll it back after every other answer. Only in SQL.
---@param connection userdata|table of LuaSQL, to the database of the table, with an open transaction
---@return true|nil, string? message, dblocks.Code? code "lost", "not_held", "contended" (others have changed the row
---  since the transaction looked first, or have it locked), "refused" (no transaction is open, …), "unreachable"
function Lock:guard(connection)
  if not self._locks._store.guard then error("guard: only locks in SQL have transactions to guard", 0) end
  options.argument(connection, options.checks.connection, "the connection", "guard")
  return held(self, guard, connection)
end

--- Asks the database whether the lock is still held.
---@return true|nil, string? message, dblocks.Code? code "lost", "not_held", "unreachable", "refused"
function Lock:verify() return acquiring.answer(held(self, step, "verify")) end

-- An acquire that was in doubt, and may still be executed, does nothing while the lock is held: see late.lua.
local function settle(self)
  local left = late.left(self._locks._store, self._resource, self.ticket)
  if left == 0 then return true end
  local sleep, fine, problem = self._locks._wait().sleep, nil, "nothing here can sleep"
  if sleep then fine, problem = clock.protected(sleep, left) end
  if fine then return settle(self) end
  return nil, ("contended: a repeated acquire of %s may be executed for %.1f seconds: release it then (%s)")
    :format(self._resource.words, left, tostring(problem)), "contended"
end

--- Releases the lock. After "in_doubt" it may be held, or not; release() may be called again then, as after every other
-- failure but "not_held" and "lost".
---@return true|nil, string? message, dblocks.Code? code "not_held" (the second time), "lost", "in_doubt",
---  "unreachable", "contended", "refused"
function Lock:release()
  if self._is_released then return failure(self, NOT_HELD) end
  local settled, reason, why = settle(self)
  if not settled then return nil, reason, why end
  local outcome, message, code, doubt = step(self, "leave")
  if outcome == "released" then
    self._is_released = true
    return true
  elseif outcome and (doubt or self._doubt) then
    self._is_released = true
    return nil, ("in_doubt: %s is held no longer: this call has released it, or it was lost before")
      :format(self._resource.words), "in_doubt"
  elseif outcome then
    self._is_released = true
    return failure(self, LOST)
  end
  self._doubt = self._doubt or doubt
  return nil, message, code
end

--- Turns a write lock into a read lock, in one step: no other writer gets in between. Does nothing to a read lock.
---@return true|nil, string? message, dblocks.Code? code "lost", "not_held", "in_doubt" (it is held, to write or to
---  read), "unreachable", "contended", "refused"
function Lock:downgrade()
  if self.kind == "mutex" then error("downgrade: a mutex has no readers; only a write lock can be downgraded", 0) end
  if self.kind == "read" then return self:verify() end
  local done, message, code = held(self, step, "downgrade")
  if done then self.kind = "read" end
  return done, message, code
end

--- At the end of its scope: release, whose failure can only be logged.
function metatable.__close(self)
  if self._is_released then return end
  local fine, released, message = pcall(self.release, self)
  if not (fine and released) then self._locks._log("warning", tostring(fine and message or released)) end
end

options.elsewhere(Lock, "lock", { unlock = "release", close = "release" })

local lock = {}

--- `since`: milliseconds, by the database's clock.
function lock.new(locks, resource, kind, ticket, since)
  return setmetatable({
    kind = kind, type = resource.type, id = resource.id, name = locks.name, ticket = ticket, acquired_at = since / 1000,
    _since = since, _locks = locks, _resource = resource, _is_released = false,
  }, metatable)
end

return lock
