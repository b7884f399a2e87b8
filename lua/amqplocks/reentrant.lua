-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Reentrant mutexes: the owner of a lock takes it again without asking the broker. Each acquire returns an entry,
-- which has the methods of a lock. The release of the last entry releases the lock.
--
-- The owner is the coroutine that acquires, or what the option `owner` names. All reentrant mutexes of one name on one
-- connection are one. An entry that is collected counts no longer. A lock that was lost stays lost for its owner until
-- all its entries are released: until then the owner enters no more, also if another owner holds the lock meanwhile.
local lock = require "amqplocks.lock"
local methods = require "amqplocks.methods"
local protected = require "amqplocks.compat.pcall"
local release = require "amqplocks.waiting.release"

local pcall = protected.pcall

local MAIN = {} -- the owner outside of coroutines, in Lua 5.1

local UNFENCED = 'conflict: this owner has acquired mutex "%s" without a fencing token'

-- The holds, by connection, then by kind and name, and then by owner: { lock =, entries =, forget = }. An entry keeps
-- its hold. So owners are compared as keys of tables are, and one that is collected is forgotten.
local held = setmetatable({}, { __mode = "k" })

---@class amqplocks.Entry
---@field kind "mutex"|"slot" as of the lock; so are the other fields
---@field name string
---@field slot integer|nil
---@field ticket string
---@field fence integer|nil
---@field acquired_at number
local Entry = {}

local metatable = { __index = Entry, __name = "amqplocks.entry" }

function metatable.__tostring(self) return "amqplocks.entry (" .. tostring(self._hold.lock) .. ")" end

local function released(self)
  return ('not_held: this entry of mutex "%s" was released before'):format(self._hold.lock.name)
end

--- As lock:held(), until this entry is released.
---@return boolean held, string? message, amqplocks.Code? code
function Entry:held()
  if self._is_over then return false, released(self), "not_held" end
  return self._hold.lock:held()
end

--- As lock:certain_for(), until this entry is released.
---@return number seconds
function Entry:certain_for() return self._is_over and 0 or self._hold.lock:certain_for() end

--- As lock:revoked().
---@return boolean revoked
function Entry:revoked() return self._hold.lock:revoked() end

--- As lock:verify(), until this entry is released.
---@return true|nil, string? message, amqplocks.Code? code
function Entry:verify()
  if self._is_over then return nil, released(self), "not_held" end
  return self._hold.lock:verify()
end

-- Whether no entry is left but this one.
local function is_last(hold, entry)
  for other in pairs(hold.entries) do
    if other ~= entry then return false end
  end
  return true
end

local function leave(self)
  local hold = self._hold
  hold.entries[self] = nil -- first: an interrupt may come after each line, and _leave() then
  self._is_over = true
  if is_last(hold) then hold.forget() end
end

--- For release.all(), as lock:_release(). Where another entry is left, nothing is asked.
function Entry:_release(begin, ...)
  if self._is_over then return nil, released(self), "not_held" end
  local one = self._hold.lock
  if is_last(self._hold, self) then
    return one:_release(function(...)
      leave(self)
      return begin(...)
    end, ...)
  end
  leave(self)
  local is_held, message, code = one:held()
  if is_held or code == "suspect" then return true end
  return nil, message, code
end

--- Releases this entry. If it is the last one, releases the lock, as lock:release(). Otherwise nothing is asked.
---@return true|nil, string? message, amqplocks.Code? code "not_held" (the second time), "lost", "unreachable"
function Entry:release()
  local ending = release.all{ self }[1]
  return ending.released, ending.message, ending.code
end

function Entry:_leave()
  if not self._is_over then leave(self) end
  if is_last(self._hold) then self._hold.lock:_leave() end
end

--- Raises an error, as for any lock that does not write.
---@return nil
function Entry:downgrade() self._hold.lock:downgrade() end

function Entry:_loss() return self._hold.lock:_loss() end

function Entry:_count_as_lost(message) self._hold.lock:_count_as_lost(message) end

function Entry:_withhold() end -- luacheck: no self

function Entry:_hand_over()
  local is_held, message, code = self:held()
  if is_held then return true end
  return nil, message, code
end

function metatable.__close(self) release.close{ self } end

methods.check(Entry, "lock", methods.LOCK)

local function enter(hold)
  local one = hold.lock
  local entry = setmetatable({
    kind = one.kind, name = one.name, slot = one.slot, ticket = one.ticket, acquired_at = one.acquired_at,
    fence = one.fence, _hold = hold, _is_over = false, _connection = one._connection,
  }, metatable)
  hold.entries[entry] = true
  return entry
end

local function begin(holds, owner, fresh)
  local hold = { lock = fresh, entries = setmetatable({}, { __mode = "k" }) }
  function hold.forget()
    if holds[owner] == hold then holds[owner] = nil end
  end
  local entry = enter(hold)
  holds[owner] = hold
  return entry
end

local function inner(outer, key, mode)
  local found = outer[key] or setmetatable({}, { __mode = mode })
  outer[key] = found
  return found
end

local reentrant = {}

--- Enters a mutex: returns another entry if its owner holds it already, otherwise acquires it by acquire(mutex, ...).
---@return amqplocks.Entry|nil, string? message, amqplocks.Code? code of lock:held(), if the lock was lost; "conflict"
---  (a fenced mutex, and its owner holds it without a token); those of mutex:acquire
function reentrant.enter(mutex, acquire, ...)
  local names = inner(held, mutex._connection, "v")
  local holds = inner(names, mutex._kind .. " " .. mutex.name, "kv") -- each hold keeps it
  local owner = mutex._owner
  if owner == nil then owner = protected.running() or MAIN end
  local hold = holds[owner]
  if hold and not is_last(hold) then
    local is_held, message, code = hold.lock:held()
    if not is_held then return nil, message, code end
    if mutex._fenced and not hold.lock.fence then return nil, UNFENCED:format(mutex.name), "conflict" end
    return enter(hold)
  end
  local fresh, message, code = acquire(mutex, ...)
  if not fresh then return nil, message, code end
  local fine, entry = pcall(begin, holds, owner, fresh)
  if fine then return entry end
  lock.close(fresh)
  error(entry, 0)
end

return reentrant
