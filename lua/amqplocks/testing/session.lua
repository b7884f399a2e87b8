-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- A connection of a world, as the core's session is one: the objects of the module call its methods.
local acquire = require "amqplocks.testing.acquire"
local administer = require "amqplocks.testing.administer"
local operation = require "amqplocks.testing.operation"

local session = {}
session.__index = session

local CLUSTER, VHOST = "amqplocks.testing", "/"

function session.new(broker, name)
  return setmetatable({
    broker = broker, locks = {}, notes = {}, _name = name, _alerts = 0, _opened = 1, _failed = {},
    _counts = { acquired = 0, lost = 0, revoked = 0 },
  }, session)
end

-- ---- for the rest of the world --------------------------------------------------------------------------------------

--- Something has become of a lock, which the connection is told.
function session:alert(level, note)
  self._alerts = self._alerts + 1
  table.insert(self.notes, { level, note })
end

function session:count(what) self._counts[what] = self._counts[what] + 1 end

function session:count_failure(code) self._failed[code] = (self._failed[code] or 0) + 1 end

-- Ends all locks: calls state[how](state, why) for each.
local function end_all(self, how, why)
  local locks = {}
  for state in pairs(self.locks) do table.insert(locks, state) end
  for _, state in ipairs(locks) do state[how](state, why) end
end

--- Its connection to the broker has ended, and so have its locks. The next one is opened at once.
function session:cut(why)
  self._opened = self._opened + 1
  end_all(self, "lose", why)
end

-- ---- what the module asks -------------------------------------------------------------------------------------------

function session:name() return self._name end

function session:state() return self.is_closed and "closed" or "open" end

function session:place() return CLUSTER, VHOST end -- luacheck: no self

function session:alerts() return self._alerts end

function session:news()
  local note = table.remove(self.notes, 1)
  if note then return note[1], note[2] end
end

function session:timeout() end -- luacheck: no self

function session:pollfd() -- luacheck: no self
  error("pollfd: a connection of amqplocks.testing has no descriptor", 0)
end

function session:stats()
  local held, suspects, waiting, failed = 0, 0, 0, {}
  for state in pairs(self.locks) do
    if state.is_counted then held = held + 1 end
    if state.is_suspect then suspects = suspects + 1 end
  end
  for _, op in ipairs(self.broker.timeline:waiting()) do
    if op.session == self and op.is_acquire then waiting = waiting + 1 end
  end
  for code, count in pairs(self._failed) do failed[code] = count end
  return {
    held = held, waiting = waiting, acquired = self._counts.acquired, lost = self._counts.lost,
    revoked = self._counts.revoked, failed = failed, contended = failed.contended or 0, retained = 0, probes = 0,
    opened = { holder = self._opened, prober = self._opened, quorum = 0 }, blocked = false,
    silence = held > 0 and (suspects > 0 and 20 or 0) or nil,
  }
end

local function begin(self, what, act)
  local op = operation.new(self, { what = what, words = "the connection" }, function() end)
  if not op:is_spoilt() then act(op) end
  return op
end

function session:open()
  return begin(self, "connect", function(op) op:finish(true) end)
end

function session:close()
  local op = operation.new(self, { what = "close", words = "the connection" }, function() end)
  op:finish(true)
  self:abort()
  return op
end

function session:abort()
  if self.is_closed then return end
  self.is_closed = true
  end_all(self, "release")
  self.broker.timeline:settle()
end

-- As guard.call() wants it of a session.
session.drop, session.__close = session.abort, session.abort

-- ---- locks ----------------------------------------------------------------------------------------------------------

-- What each kind of lock claims, by the name of the method.
local kinds = {
  semaphore = function(broker, name) return { acquire = broker:slots(name) } end,
  token_semaphore = function(broker, name) return { acquire = broker:token_semaphore(name) } end,
  mutex = function(broker, name) return { acquire = broker:mutex(name) } end,
  fast_mutex = function(broker, name) return { acquire = broker:fast_mutex(name) } end,
  rwlock = function(broker, name) return broker:sides(name) end,
}

function session:resource(kind, name, opts)
  local object = {}
  for what, resource in pairs(kinds[kind](self.broker, name)) do
    local claims = { resource = resource, most = opts.most, is_fenced = opts.fenced, queue_type = opts.queue_type }
    object[what] = function(_, how)
      return acquire(self, resource, claims, how)
    end
  end
  return object
end

-- ---- administrators -------------------------------------------------------------------------------------------------

function session:administer(action, name, opts, slots)
  return administer.slots(self, self.broker:slots(name), action, opts, slots)
end

function session:administer_tokens(action, name, opts, permits)
  return administer.permits(self, self.broker:token_semaphore(name), action, opts, permits)
end

function session:wait_released(name, opts, slots)
  return administer.wait_released(self, self.broker:slots(name), opts, slots)
end

function session:revoke(name, opts, slot)
  local resource = self.broker:slots(name)
  return administer.revoke(self, resource, opts, function() return resource:locks{ slot } end)
end

function session:revoke_lock(kind, name, opts)
  local sides = self.broker:sides(name)
  local resources = { mutex = self.broker:mutex(name), readers = sides.read, writer = sides.write }
  local resource = resources[kind]
  return administer.revoke(self, resource, opts or {}, function() return resource:locks() end)
end

function session:forget_fence(kind, name)
  return begin(self, "forget_fence", function(op)
    op.broker:forget_fence(kind, name)
    op:finish(true)
  end)
end

return session
