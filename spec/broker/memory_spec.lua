-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Out of memory, on a real broker: in the C module, and in Lua, in a host with an allocator that fails. spec/unit tests
-- the C module for every kind of lock.
local amqplocks = require "amqplocks"
local gate = require "spec.support.gate"
local shortage = require "spec.support.shortage"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local URL = os.getenv "AMQP_URL" or "amqp://guest:guest@localhost"

setup(shortage.begin)
teardown(shortage.over)
after_each(shortage.disarm)
stage.tidy()

local function until_free(name)
  until_true(function () return not gate.held("mutex", name) end)
end

-- Has story(n) run with the first allocation failing, the sixth, …, until it says that there was none left to fail;
-- with each of them in the long run.
local STEP = os.getenv "AMQPLOCKS_SOAK" and 1 or 5

local function at_any_point(story)
  local n = 1 - STEP
  repeat n = n + STEP until story(n) == 0
  assert.is_true(n > 20, n .. " allocations")
end

-- The C module's ----------------------------------------------------------------------------------------------------

local EXPECTED = { no_memory = true, lost = true, not_held = true, closed = true }

local function fine(result, message, code)
  if not result then assert.is_true(EXPECTED[code], message) end
  return result
end

local function use(name)
  local conn = fine(amqplocks.connect(URL, { timeout = 60 }))
  if not conn then return end
  local made, mutex = pcall(conn.mutex, conn, name)
  local lock = made and fine(mutex:acquire{ timeout = 60 })
  if lock then
    fine(lock:verify())
    fine(lock:release())
  end
  if made then fine(mutex:with({ timeout = 60 }, function () return true end)) end
  conn:close()
end

-- As in spec/sim/memory_spec.lua.
for how, on in pairs{ ["once"] = false, ["for good"] = true } do
  it(("without memory for the C module a mutex is got or not, %s, and nothing is left of it"):format(how), function ()
    local name = gate.name()
    at_any_point(function (n)
      shortage.c.arm(n, on)
      coroutine.wrap(use)(name) -- whose stack is gone when it is over, with whatever was on it
      local _, failed = shortage.disarm()
      shortage.look_for_leaks(failed, n)
      until_free(name)
      return failed
    end)
  end)
end

-- Lua's -------------------------------------------------------------------------------------------------------------

local PROGRAM = [[
  if jit then jit.off() end -- LuaJIT's compiler itself may crash when it gets no memory
  local amqplocks = require "amqplocks"
  require "amqplocks.drivers.native"
  local URL, NAME, CLOSES = %q, %q, %s
  local note, arm, pcall = note, arm, pcall
  local CONNECT, WAIT = { timeout = 60 }, { timeout = 60 }
  local conn, mutex, lock, last, rwlock = false, false, false, false, false

  -- While there is memory, room for calls: that Lua throws where it cannot even make one is its own affair.
  local function make_room(calls) return calls > 0 and not make_room(calls - 1) end

  local function call(what, fn, ...)
    local has_room = pcall(make_room, 60)
    local fine, result, message, code = pcall(fn, ...)
    if not fine and (has_room or result ~= "not enough memory") then note(what, "threw", result) end
    if fine and not result then note(what, "failed", code, message) end
    return fine and result
  end

  local function inside() return true end

  local function go()
    conn = call("connect", amqplocks.connect, URL, CONNECT)
    mutex = conn and call("mutex", conn.mutex, conn, NAME)
    lock = mutex and call("acquire", mutex.acquire, mutex, WAIT)
    if lock then
      call("held", lock.held, lock)
      call("verify", lock.verify, lock)
      call("release", lock.release, lock)
    end
    if mutex then call("with", mutex.with, mutex, WAIT, inside) end
    rwlock = conn and call("rwlock", conn.rwlock, conn, NAME)
    lock = rwlock and call("write", rwlock.write, rwlock, WAIT)
    if lock then
      call("downgrade", lock.downgrade, lock)
      call("release", lock.release, lock)
    end
    last = mutex and call("try_acquire", mutex.try_acquire, mutex)
    if conn and CLOSES then call("close", conn.close, conn) end
  end

  -- What goes wrong in a call is noted there. Between two of them Lua may have no memory for the frame of the next,
  -- depending on when it has last made its stack smaller: that is its own affair, too.
  arm()
  local fine, problem = pcall(go)
  if not fine and problem ~= "not enough memory" then error(problem, 0) end
]]

-- A lock that a call had acquired before it threw is held until it is collected, for this connection as for others.
local function look_at(outcome)
  assert.is_false(outcome.panicked)
  local has_thrown = false
  for _, note in ipairs(outcome) do
    local how, code = note:match "^%S+ (%S+) (%S+)"
    local is_told = how == "failed" and (EXPECTED[code] or has_thrown and (code == "deadlock" or code == "busy"))
    has_thrown = has_thrown or how == "threw"
    assert.is_true(is_told or note:find "^%S+ threw .*not enough memory$" ~= nil, note)
  end
end

-- How many more fail after the first one: Lua collects what it can, and asks once more. Whether the program closes its
-- connection, or leaves that to lua_close.
for how, case in pairs{ ["for a moment"] = { 1, true }, ["for good"] = { 1000000, true },
  ["for good, up to lua_close"] = { 1000000, false } } do
  it(("without memory for Lua a mutex is got or not, %s, and nothing is left of it"):format(how), function ()
    local name = gate.name()
    local program = PROGRAM:format(URL, name, tostring(case[2]))
    at_any_point(function (n)
      local outcome = shortage.starved.run(program, n, n + case[1])
      look_at(outcome)
      assert.equal(0, outcome.blocks)
      shortage.look_for_leaks(0, n)
      until_free(name)
      return outcome.failed
    end)
  end)
end

-- Lua 5.1 and LuaJIT forget a finalizer that they have no memory to call. Whether calling one takes any is a matter of
-- how much of its stack a coroutine uses when it collects.
local FORGETS = [[
  if jit then jit.off() end
  local amqplocks = require "amqplocks"
  local pcall, collectgarbage, unpack = pcall, collectgarbage, table.unpack or unpack
  local url, name, count = %q, %q, 40
  local kept, nothing, collectors = {}, {}, {}

  local function collect(...)
    collectgarbage()
    return ...
  end

  for i = 1, count do
    local conn = assert(amqplocks.connect(url))
    kept[i] = { conn, assert(conn:mutex(name .. i):try_acquire()) }
  end
  for i = 1, count do
    collectors[i] = coroutine.wrap(function ()
      coroutine.yield()
      kept[i] = nil
      pcall(collect, unpack(nothing, 1, i))
    end)
    collectors[i]()
  end
  arm()
  for i = 1, count do pcall(collectors[i]) end
]]

it("a state of Lua that has no memory to finalize connections holds nothing any more when it has ended", function ()
  local name = gate.name()
  local outcome = shortage.starved.run(FORGETS:format(URL, name), 1, 1000000)
  assert.is_false(outcome.panicked)
  assert.is_true(outcome.failed > 0)
  assert.equal(0, #outcome)
  for i = 1, 12 do until_free(name .. i) end
  shortage.c.forget() -- of what Lua forgot there may be memory
end)
