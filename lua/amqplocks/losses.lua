-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Which locks of a connection are lost, and the function that is told of each of them, once.
--
-- The core only counts what becomes of locks. When its count has moved, the locks that are still alive are asked one by
-- one. A lock that was told of is watched no longer; one that its owner has let go of by then is nobody's loss. The
-- function may do what it likes: wait for this connection, take itself away, close the connection, throw. While it runs
-- it is not called again, however deep in it somebody waits: whoever called it goes on when it has returned. What a
-- throw left untold, the next call that waits tells.
local pcall = require("amqplocks.protected").pcall

local losses = {}
losses.__index = losses

--- `count` gives how often something has become of a lock so far. `keeps`: a lock that nobody else refers to stays
-- alive, and held, until it is forgotten.
function losses.new(count, keeps)
  return setmetatable({
    _count = count,
    _watched = keeps and {} or setmetatable({}, { __mode = "k" }),
    _lost = {}, -- found, and not told yet
    _seen = 0,  -- the count when it was last looked for lost ones; nil: look anew
  }, losses)
end

--- Whom to tell; nil: nobody.
function losses:on(fn)
  self._fn = fn
  self._lost, self._seen = {}, nil
end

--- A lock that was had, and that its owner does not know of yet: it is nobody's loss.
function losses:expect(lock) self._watched[lock] = "expected" end

--- From now on it is its owner's.
function losses:watch(lock) self._watched[lock] = "watched" end

--- Those that are watched or expected, as a list.
function losses:watched()
  local locks = {}
  for lock in pairs(self._watched) do table.insert(locks, lock) end
  return locks
end

function losses:forget(lock) self._watched[lock] = nil end

local function look(self)
  local count = self._count()
  if self._closed or not self._fn or self._seen == count then return end
  local lost = {}
  for lock, how in pairs(self._watched) do
    if how == "watched" and select(3, lock:held()) == "lost" then table.insert(lost, lock) end
  end
  self._lost, self._seen = lost, count
end

--- Looks a last time, as long as "lost" still means that it was not us: what happens from here on is our doing.
function losses:close()
  look(self)
  self._closed = true
end

local function tell_all(self)
  look(self)
  while self._fn and #self._lost > 0 do
    local lock = table.remove(self._lost)
    if self._watched[lock] then
      local _, message, code = lock:held()
      self._watched[lock] = nil
      if code == "lost" then self._fn(lock, code, message) end
    end
    look(self)
  end
end

-- Whether we are called from inside the function; not so when its coroutine waits to be resumed, or never will be.
local function is_telling(self)
  local teller = self._teller
  if type(teller) ~= "thread" then return teller ~= nil end -- Lua 5.1's main program, which never yields
  local status = coroutine.status(teller)
  return status == "running" or status == "normal"
end

--- Tells of all there is to tell.
function losses:tell()
  if is_telling(self) then return end
  self._teller = coroutine.running() or true
  local fine, problem = pcall(tell_all, self)
  self._teller = nil
  if not fine then error(problem, 0) end
end

return losses
