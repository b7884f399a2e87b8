-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Administrators, each in a process of its own. At random they resize locks, up and down, ask for slots back (revoke),
-- wait for them, and repair. They record (see journal.lua):
--
--     admin op pool action slots within    done op result | done op code message
--     count pool expected taken more       at the end, by `audit`: how many locks new clients can acquire
local amqplocks = require "amqplocks"
local client = require "spec.support.client"
local journal = require "tools.prove.journal"
local pools = require "tools.prove.pools"
local socket = require "socket"
local until_true = require "spec.support.until"

local admin = {}

local TIMEOUT, PATIENCE = 3, 4

local function connect(url, lane)
  return amqplocks.connect(url, { name = lane, heartbeat = 1, timeout = TIMEOUT })
end

-- Runs an action by its name, with its argument. Only numbers and true are recorded as results.
local function act(writing, object, pool, action, argument, options)
  local op = writing:number()
  writing:note("admin", { op = op, pool = pool.name, action = action,
    slots = type(argument) == "number" and argument or nil, within = PATIENCE + (options.wait or 0) + 2 * TIMEOUT })
  local result, message, code
  if argument ~= nil then
    result, message, code = object[action](object, argument, options)
  else
    result, message, code = object[action](object, options)
  end
  if result then message, code = nil, nil end
  writing:note("done", { op = op, result = type(result) ~= "table" and result or nil, code = code, message = message })
  return result, code
end

local function resize(writing, object, pool)
  local options = { timeout = PATIENCE }
  if math.random() < 0.5 then options.wait = math.random() end
  if not pools.is_token(pool) and math.random() < 0.3 then options.revoke = true end
  return act(writing, object, pool, "resize", math.random(pool.least, pool.most), options)
end

local ACTIONS = {
  function(writing, object) return act(writing, object.admin, object.pool, "repair", nil, { timeout = PATIENCE }) end,
  function(writing, object) return act(writing, object.admin, object.pool, "slots", nil, { timeout = PATIENCE }) end,
  function(writing, object)
    if pools.is_token(object.pool) then return end
    return act(writing, object.admin, object.pool, "revoke", math.random(object.pool.most), { timeout = PATIENCE })
  end,
  function(writing, object)
    if pools.is_token(object.pool) then return end
    return act(writing, object.admin, object.pool, "wait_released", { math.random(object.pool.most) },
      { timeout = math.random() })
  end,
  function(writing, object)
    if pools.is_token(object.pool) then return end
    return act(writing, object.admin, object.pool, "status", nil, { timeout = PATIENCE })
  end,
}

local function turn(writing, conn, list)
  local pool = list[math.random(#list)]
  local object = { admin = pools.admin(conn, pool), pool = pool }
  if math.random() < 0.7 then return resize(writing, object.admin, pool) end
  return ACTIONS[math.random(#ACTIONS)](writing, object)
end

local function administered(list)
  local some = {}
  for _, pool in ipairs(pools.decode(list)) do
    if pools.is_administered(pool) then table.insert(some, pool) end
  end
  return some
end

--- Creates what must exist before any client can lock.
function admin.create(url, list)
  local conn = assert(connect(url, "creator"))
  for _, pool in ipairs(administered(list)) do assert(pools.admin(conn, pool):resize(pool.most)) end
  conn:close()
  return true
end

--- Runs until the spec sends something, with a pause of at most so many seconds after each action.
function admin.run(spec, cpath, directory, lane, name, url, list, seed, pause)
  journal.use(cpath)
  math.randomseed(seed)
  local writing, some, conn = journal.open(directory, lane), administered(list), nil
  while not socket.select({ spec }, nil, 0)[spec] do
    conn = conn or connect(url, name)
    if conn then turn(writing, conn, some) end
    socket.sleep(math.random() ^ 2 * pause)
  end
  if conn then conn:close() end
  writing:note "end"
  return true
end

-- The end -----------------------------------------------------------------------------------------------------------

local NOTICES = 8 -- seconds after which the broker has noticed every process that is gone

-- Acquires until nothing is left; returns the locks, and the reason why there were no more.
local function take_all(conn, pool, expected)
  local locks, object = {}, pools.lock(conn, pool)
  local way = pool.kind == "rwlock" and "write" or "acquire"
  while #locks <= pool.most do
    local lock, _, code = object[way](object, { timeout = #locks < expected and NOTICES or 0.3, poll = 0.2 })
    if not lock then return locks, code end
    table.insert(locks, lock)
  end
  return locks, "more"
end

-- The last strike may have been a restart, so this retries after the first refusal.
local function connect_at_last(url, lane)
  return (until_true(function () return connect(url, lane) end, NOTICES))
end

local function count(writing, conn, pool)
  local expected = pool.most
  if pools.is_administered(pool) then
    expected = act(writing, pools.admin(conn, pool), pool, "slots", nil, { timeout = 10 }) or -1
  end
  local locks, more = take_all(conn, pool, expected)
  writing:note("count", { pool = pool.name, expected = expected, taken = #locks, more = more, least = pool.least,
    most = pool.most })
  local taken = #locks
  for _, lock in ipairs(locks) do assert(lock:release()) end
  return taken == expected
end

--- When all clients are gone: how many locks of each pool can be acquired. If the number is wrong the pool is repaired,
-- which is recorded, and counted once more.
function admin.audit(cpath, directory, lane, name, url, list)
  journal.use(cpath)
  local writing, conn = journal.open(directory, lane), connect_at_last(url, name)
  for _, pool in ipairs(pools.decode(list)) do
    if not count(writing, conn, pool) and pools.is_administered(pool) then
      act(writing, pools.admin(conn, pool), pool, "repair", nil, { timeout = 10 })
      count(writing, conn, pool)
    end
  end
  conn:close()
  writing:note "end"
  return true
end

-- A fast mutex has no administrators: clients make its queue.
local function delete(url, queue)
  local link = assert(client.connect(url))
  assert(link:delete(queue))
  link:close()
end

--- Deletes what `create` created.
function admin.destroy(url, list)
  local conn = connect_at_last(url, "destroyer")
  for _, pool in ipairs(administered(list)) do assert(pools.admin(conn, pool):destroy()) end
  for _, pool in ipairs(pools.decode(list)) do
    if pools.fence(pool) then assert(conn:mutex(pool.name):forget_fence()) end
    if pools.is_fast(pool) then delete(url, pools.bell(pool)) end
  end
  conn:close()
  return true
end

return admin
