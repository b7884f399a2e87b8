-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Every call that may wait, tried inside C functions that call Lua, where no coroutine can yield. For every event loop
-- and for nginx, whose handlers load this file: so it requires nothing of the specs.
--
--     local inside_c = require "spec.support.inside_c"
--     local held = inside_c.hold(conn, name, slots, permits)   -- outside of C functions
--     inside_c.try(conn, held, connect)                        -- raises an error that lists what went wrong
--     inside_c.release(held)
local inside_c = {}

local unpack = table.unpack or unpack

-- A %s of Lua 5.1 does not call __tostring.
local function show(value)
  if _VERSION == "Lua 5.1" and not rawget(_G, "jit") then return tostring(value) end
  return ("%s"):format(value)
end

--- Each calls fn() inside a C function, once.
inside_c.ways = {
  sort = function(fn)
    table.sort({ 1, 2 }, function(a, b)
      if fn then fn() end
      fn = nil
      return a < b
    end)
  end,
  gsub = function(fn) ("x"):gsub("x", function() fn() end) end,
  format = function(fn)
    show(setmetatable({}, { __tostring = function()
      fn()
      return ""
    end }))
  end,
  require = function(fn)
    package.loaded["loaded while it waits"] = nil
    package.preload["loaded while it waits"] = function() fn() end
    require "loaded while it waits"
  end,
  load = function(fn) load(function() fn() end) end,
}

local NEVER = function() error("it was called", 0) end

local function kind(...)
  return { { "try_acquire" }, { "acquire" }, { "acquire", { timeout = 1, patient = true, on_wait = NEVER } },
           { "with", NEVER }, { "with", { timeout = 1 }, NEVER }, ... }
end

local SIDES = {
  { "try_read" }, { "read" }, { "with_read", NEVER }, { "try_write" }, { "write" }, { "with_write", NEVER },
  { "revoke_readers" }, { "revoke_writer" }, { "forget_fence" },
}

local COUNTS = {
  { "create", 1 }, { "add", 1 }, { "remove", 1 }, { "resize", 2 }, { "slots" }, { "repair" }, { "destroy" },
}

local ENDS, LOOKS = { { "verify" }, { "release" } }, { held = {}, certain_for = {}, revoked = {} }

-- Lists of: the object's name, the object, the calls that wait, and those that do not.
local function table_of(conn, held)
  local name = held.name
  return {
    { "conn", conn, { { "elect", "office", NEVER } }, {
      stats = {}, pollfd = {}, events = {}, timeout = {}, on_lost = {}, on_event = { function() end },
      semaphore = { "a" }, admin = { "a" }, token_semaphore = { "a" }, mutex = { "a" }, fast_mutex = { "a" },
      rwlock = { "a" }, all = { { conn:mutex "a" } } }, { close = true } },
    { "mutex", conn:mutex(name), kind({ "revoke" }, { "forget_fence" }), {}, { create = true, destroy = true } },
    { "persistent mutex", conn:mutex(name, { persistent = true }), kind({ "create" }, { "destroy" }, { "revoke" },
      { "forget_fence" }), {} },
    { "fenced mutex", conn:mutex(name .. "-f", { fenced = true }), kind(), {}, "part" },
    { "reentrant mutex", conn:mutex(name .. "-r", { reentrant = true, owner = "another" }), kind(), {}, "part" },
    { "fast_mutex", conn:fast_mutex(name), kind(), {}, { revoke = true, forget_fence = true } },
    { "semaphore", conn:semaphore(held.slots), kind { "acquire", { count = 2 } }, {} },
    { "token_semaphore", conn:token_semaphore(held.permits), kind({ "acquire", { count = 2 } }, unpack(COUNTS)), {},
      { revoke = true, forget_fence = true } },
    { "rwlock", conn:rwlock(name), SIDES, { reader = {}, writer = {} } },
    { "side", conn:rwlock(name):reader(), kind(), {} },
    { "all", conn:all { conn:mutex(name), conn:rwlock(name):writer() }, kind(), {} },
    { "admin", conn:admin(held.slots),
      { { "status" }, { "wait_released", { 1 } }, { "revoke", 1 }, unpack(COUNTS) }, {} },
    { "lock", held.mutex, ENDS, LOOKS, { downgrade = true } }, { "slot", held.slot, ENDS, LOOKS, "part" },
    { "permit", held.permit, ENDS, LOOKS, "part" }, { "fast", held.fast, ENDS, LOOKS, "part" },
    { "write", held.write, { { "verify" }, { "downgrade" }, { "release" } }, LOOKS },
    { "entry", held.entry, ENDS, LOOKS, { downgrade = true } }, { "locks", held.several, ENDS, LOOKS },
  }
end

-- The public methods of an object that the table does not name.
local function forgotten(object, calls, looks, but)
  local known, missing = {}, {}
  for _, call in ipairs(calls) do known[call[1]] = true end
  for method in pairs(object._class) do
    local is_known = known[method] or looks[method] or but and but[method] or method:sub(1, 1) == "_"
    if not is_known then table.insert(missing, method) end
  end
  return missing
end

local function try_one(way, what, object, calls, looks, fail)
  for _, call in ipairs(calls) do
    local method, arguments, results = call[1], { unpack(call, 2) }, nil
    inside_c.ways[way](function() results = { pcall(object[method], object, unpack(arguments)) } end)
    if results[1] ~= true or results[2] ~= nil or results[4] ~= "phase" then
      fail(("%s %s:%s gives %s, %s"):format(way, what, method, tostring(results[2]), tostring(results[3])))
    end
  end
  for method, arguments in pairs(looks) do
    local fine, problem
    inside_c.ways[way](function() fine, problem = pcall(object[method], object, unpack(arguments)) end)
    if not fine then fail(("%s %s:%s raises %s"):format(way, what, method, tostring(problem))) end
  end
end

--- Takes a lock of each kind. `slots`: the name of a semaphore of at least four; `permits`: of a token semaphore.
function inside_c.hold(conn, name, slots, permits)
  local held = { name = name, slots = slots, permits = permits }
  held.mutex = assert(conn:mutex(name .. "-a"):acquire { timeout = 60 })
  held.slot = assert(conn:semaphore(slots):acquire { timeout = 60 })
  held.several = assert(conn:semaphore(slots):acquire { timeout = 60, count = 2 })
  held.permit = assert(conn:token_semaphore(permits):acquire { timeout = 60 })
  held.fast = assert(conn:fast_mutex(name .. "-c"):acquire { timeout = 60 })
  held.write = assert(conn:rwlock(name .. "-a"):write { timeout = 60 })
  held.entry = assert(conn:mutex(name .. "-b", { reentrant = true }):acquire { timeout = 60 })
  return held
end

local LOCKS = { "mutex", "slot", "several", "permit", "fast", "write", "entry" }

--- Makes each call in each way. `connect` connects with a function for the URL. Raises an error that lists what did not
-- return `phase`, what began nevertheless, and which lock is not held any more.
function inside_c.try(conn, held, connect)
  local problems = {}
  local function fail(problem) table.insert(problems, problem) end
  local calls = table_of(conn, held)
  for _, one in ipairs(calls) do
    if one[5] ~= "part" then
      for _, method in ipairs(forgotten(one[2], one[3], one[4], one[5])) do fail(one[1] .. ":" .. method .. "?") end
    end
  end
  local before = conn:stats()
  for way in pairs(inside_c.ways) do
    for _, one in ipairs(calls) do try_one(way, one[1], one[2], one[3], one[4], fail) end
    try_one(way, "amqplocks", { connect = function() return connect(NEVER) end }, { { "connect" } }, {}, fail)
  end
  local after = conn:stats()
  for _, count in ipairs { "acquired", "held", "probes" } do
    if before[count] ~= after[count] then fail(("%s: %d, then %d"):format(count, before[count], after[count])) end
  end
  if next(after.failed) then fail("an acquire has begun: " .. next(after.failed)) end
  for _, lock in ipairs(LOCKS) do
    local verified, message = held[lock]:verify()
    if not verified then fail(lock .. ": " .. message) end
  end
  if problems[1] then error(table.concat(problems, "\n"), 0) end
end

--- Releases the locks.
function inside_c.release(held)
  for _, lock in ipairs(LOCKS) do assert(held[lock]:release()) end
end

return inside_c
