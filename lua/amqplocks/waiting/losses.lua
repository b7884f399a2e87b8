-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Which locks of a connection are lost, and the function that is told of each of them, once.
--
-- The core only counts what becomes of locks. When its count has moved, the locks that are still alive are asked one by
-- one. A loss is noted, and the lock watched no longer: so it is told once, whether its owner then keeps the lock,
-- releases it or closes the connection. Whichever of these finds the lock lost notes it as well. A lock that was let go
-- of before is nobody's loss.
--
-- The function may do what it likes: wait for this connection, take itself away, release, close the connection, throw.
-- Until it has returned it is not called again: neither by calls inside it, nor by other coroutines while it yields.
-- These only note what is lost, and return; the call that it was made from tells of that next. If the coroutine of that
-- call is closed, killed or collected instead, the next call that waits tells. The same holds for what a throw left
-- untold. After close no call waits: then throws are ignored.
local plain_pcall = pcall
local protected = require "amqplocks.compat.pcall"
local may_return, pcall = protected.may_return, protected.pcall

local losses = {}
losses.__index = losses

--- `count` gives how often something has become of a lock so far. `keeps`: a lock that nobody else refers to stays
-- alive, and held, until it is forgotten.
function losses.new(count, keeps)
  return setmetatable({
    _count = count,
    _watched = keeps and {} or setmetatable({}, { __mode = "k" }),
    _lost = {}, -- noted, and not told yet: { lock =, message = }, the first one first
    _seen = 0,  -- the count when it was last looked for lost ones; nil: look anew
    _teller = setmetatable({}, { __mode = "v" }), -- [1]: the coroutine that tells now; it may be thrown away meanwhile
  }, losses)
end

--- Whom to tell; nil: nobody. What was noted is then watched again, for whoever is to be told next.
function losses:on(fn)
  self._fn = fn
  self._seen = nil
  if fn then return end
  for _, loss in ipairs(self._lost) do self._watched[loss.lock] = "watched" end
  self._lost = {}
end

--- Whether anybody is told.
function losses:are_told() return self._fn ~= nil end

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

--- A lock that counts as lost, whatever the core knows of it.
function losses:add(lock, message)
  if not self._closed and self._fn then table.insert(self._lost, { lock = lock, message = message }) end
  self._watched[lock] = nil
end

local function note(self, lock)
  local message = lock:_loss()
  if message then self:add(lock, message) end
end

--- Its owner has let go of it. If it was lost before, that is still to be told; without memory to note it, it is
-- watched on.
function losses:forget(lock)
  if self._watched[lock] == "watched" and self._fn and not self._closed and not plain_pcall(note, self, lock) then
    self._seen = nil
  else
    self._watched[lock] = nil
  end
end

local function look(self)
  local count = self._count()
  if self._closed or not self._fn or self._seen == count then return end
  for lock, how in pairs(self._watched) do
    if how == "watched" then note(self, lock) end
  end
  self._seen = count
end

--- Looks a last time, as long as "lost" still means that it was not us: what happens from here on is our doing.
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

--- Tells of all there is to tell. If another call does that already, what is found here is only noted, and that call
-- tells of it.
function losses:tell()
  local teller = self._teller
  if may_return(teller[1]) then return look(self) end
  teller[1] = coroutine.running() or true
  local fine, problem = pcall(tell_all, self)
  if not fine and self._closed then pcall(tell_all, self) end -- it was closed meanwhile, and did not tell itself
  teller[1] = nil
  if not fine then error(problem, 0) end
end

return losses
