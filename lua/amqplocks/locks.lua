-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Several locks that were acquired together. They are released together. Each is an ordinary lock, which may be lost
-- alone: the others stay held until the release.
local methods = require "amqplocks.methods"
local release = require "amqplocks.waiting.release"

---@class amqplocks.Locks
---@field locks amqplocks.Lock[] the locks, in the order in which the caller named them
---@field slots integer[]|nil the slots, of a semaphore of which several were acquired at once
local Locks = {}
local metatable = { __index = Locks, __name = "amqplocks.locks" }

function metatable.__tostring(self)
  local words = {}
  for i, one in ipairs(self.locks) do words[i] = tostring(one) end
  return "amqplocks.locks (" .. table.concat(words, ", ") .. ")"
end

--- Returns whether all of them are still held, as lock:held(). No I/O.
---@return boolean held, string? message, amqplocks.Code? code of the first that is not: "suspect", "lost", "not_held"
---  or "forked"
function Locks:held()
  for _, one in ipairs(self.locks) do
    local held, message, code = one:held()
    if not held then return false, message, code end
  end
  return true
end

--- Returns for how many seconds all of them are certain to be held; see lock:certain_for. No I/O.
---@return number seconds
function Locks:certain_for()
  local least = math.huge
  for _, one in ipairs(self.locks) do least = math.min(least, one:certain_for()) end
  return least
end

--- Returns whether an administrator has asked the holder to release one of them; see lock:revoked. No I/O.
---@return boolean revoked
function Locks:revoked()
  for _, one in ipairs(self.locks) do
    if one:revoked() then return true end
  end
  return false
end

--- Asks the broker whether all of them are held, one after the other; see lock:verify.
---@return true|nil, string? message, amqplocks.Code? code of the first that is not: those of lock:verify
function Locks:verify()
  for _, one in ipairs(self.locks) do
    local held, message, code = one:verify()
    if not held then return nil, message, code end
  end
  return true
end

-- Keeps in mind what may have been lost before its release, if the broker did not say.
local function was_doubtful(ending, is_certain)
  local code = ending.code
  return not ending.released and not is_certain and code ~= "lost" and code ~= "not_held" and code ~= "forked"
end

--- Releases all of them, also if one of the releases fails. The releases are sent together, that of the lock that was
-- acquired last first. Then waits for the broker's confirmations; see lock:release. An error, as in on_lost's function,
-- is raised when all of them are released.
---@return true|nil, string? message, amqplocks.Code? code of the first release that failed: "not_held" (the second
---  time), "lost", "unreachable"
function Locks:release()
  local held, first = {}, nil
  for _, one in ipairs(self._taken) do held[one] = one:held() end
  for _, ending in ipairs(release.all(self._taken)) do
    if was_doubtful(ending, held[ending.of]) then table.insert(self._doubtful, ending.of) end
    first = first or not ending.released and ending
  end
  if first then return nil, first.message, first.code end
  return true
end

--- For `with`: the message of the first that was lost.
---@return string? message
function Locks:_loss()
  for _, one in ipairs(self.locks) do
    local message = one:_loss()
    if message then return message end
  end
end

--- For `with`: counts those as lost whose release could not prove that they were not.
---@param message string
function Locks:_count_as_lost(message)
  for _, one in ipairs(self._doubtful) do one:_count_as_lost(message) end
end

function metatable.__close(self) release.close(self._taken) end

methods.check(Locks, "locks", methods.LOCK)

local locks = {}

--- `taken`: the same locks, in the order in which they were acquired.
function locks.new(list, taken, slots)
  return setmetatable({ locks = list, slots = slots, _taken = taken, _doubtful = {} }, metatable)
end

--- Gives locks to their caller, if all of them are held.
---@return true|nil, string? message, amqplocks.Code? code of the first that is not
function locks.hand_over(taken)
  for _, one in ipairs(taken) do
    local is_held, message, code = one:_hand_over()
    if not is_held then
      for _, each in ipairs(taken) do each:_withhold() end
      return nil, message, code
    end
  end
  return true
end

return locks
