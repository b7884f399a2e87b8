-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Inside a C function that calls Lua (table.sort, string.gsub, require) no coroutine can yield. In each event loop and
-- in nginx a call that would have to wait there fails with `phase`, and nothing of it has begun.
local amqplocks = require "amqplocks"
local gate = require "spec.support.gate"
local inside_c = require "spec.support.inside_c"
local loops = require "spec.support.loops"
local scene = require "spec.broker.openresty_scene"
local stage = require "spec.support.stage"
local token_scene = require "spec.broker.token_scene"
local until_true = require "spec.support.until"

scene.tidy()

-- The names that inside_c.hold() takes.
local function names()
  local name, permits = gate.name(), token_scene.name()
  assert.equal(4, stage.connect():token_semaphore(permits):resize(4))
  stage.undo(function() stage.delete(name .. "-c-fastmutex") end)
  return name, stage.semaphore(4), permits
end

-- Whether those locks are held, as another client sees it.
local function is_held(name, slots, permits)
  local other, count = stage.connect(), 0
  stage.fails("busy", other:mutex(name .. "-a"):try_acquire())
  stage.fails("busy", other:mutex(name .. "-b"):try_acquire())
  stage.fails("busy", other:fast_mutex(name .. "-c"):try_acquire())
  stage.fails("busy", other:rwlock(name .. "-a"):try_read())
  for slot = 1, 4 do count = count + (stage.held(slots, slot) and 1 or 0) end
  assert.equal(3, count)
  assert.equal(1, (select(3, other:token_semaphore(permits):slots())))
end

-- Whether all of them can be had.
local function is_free(name, slots, permits)
  local other = stage.connect()
  local mutexes = { other:mutex(name .. "-a"), other:mutex(name .. "-b"), other:fast_mutex(name .. "-c") }
  assert(other:all(mutexes):with({ timeout = 60 }, function() end))
  assert(other:rwlock(name .. "-a"):with_write({ timeout = 60 }, function() end))
  assert(other:semaphore(slots):with({ timeout = 60, count = 4 }, function() end))
  assert(other:token_semaphore(permits):with({ timeout = 60, count = 4 }, function() end))
end

for _, loop in ipairs(loops) do
  loop.it(it, pending)("inside a C function no call waits, and what is held stays held; close releases: " .. loop.name,
    function()
      local function connect(url) return amqplocks.connect(url, { driver = loop.option }) end
      local name, slots, permits = names()
      local conn = assert(connect())
      local held = inside_c.hold(conn, name, slots, permits)
      inside_c.try(conn, held, connect)
      is_held(name, slots, permits)
      inside_c.release(held)
      is_free(name, slots, permits)
      inside_c.hold(conn, name, slots, permits)
      inside_c.ways.sort(function() conn:close() end)
      loop.until_true(function() return not gate.held("mutex", name .. "-a") end)
      is_free(name, slots, permits)
    end)
end

local FILE = "spec/support/inside_c.lua"
local LOCATIONS = {
  ["= /try"] = [[
    local inside_c = loadfile(var.arg_file)()
    local conn = connect()
    local held = inside_c.hold(conn, var.arg_name, var.arg_slots, var.arg_permits)
    inside_c.try(conn, held, amqplocks.connect)
    local function verify() return assert(held.mutex:verify()) end
    for _, call in ipairs { pcall, xpcall, coroutine.wrap(function() return true, verify() end) } do -- can yield
      assert(select(2, assert(call(verify, error))))
    end
    gates:set(var.arg_gate .. "-tried", true)
    await_gate(var.arg_gate)
    inside_c.release(held)
    conn:close()
    ngx.say "released"]],
  ["= /close"] = [[
    local inside_c = loadfile(var.arg_file)()
    local conn = connect()
    inside_c.hold(conn, var.arg_name, var.arg_slots, var.arg_permits)
    inside_c.ways.sort(function() conn:close() end)
    gates:set(var.arg_gate .. "-tried", true)
    await_gate(var.arg_gate)
    ngx.say "closed"]],
  ["= /connect"] = [[
    local inside_c, conn = loadfile(var.arg_file)(), nil
    inside_c.ways.require(function() conn = connect() end)
    ngx.say((conn:mutex(var.arg_name):with(function() end)))
    conn:close()]],
}

it("inside a C function, in nginx, no call waits, what is held stays held, the worker lives", function()
  local server = scene.start{ locations = LOCATIONS }
  local worker = server:workers()[1]
  local name, slots, permits = names()

  -- Begins a request, and waits until it has done what matters.
  local function begin(path)
    local its_gate = scene.gate()
    local request = server:begin(("%s?file=%s&name=%s&slots=%s&permits=%s&gate=%s"):format(path, FILE, name, slots,
      permits, its_gate))
    until_true(function()
      if request:finished() then error("it says: " .. scene.answer(request) .. server:errors(), 0) end
      return select(2, server:get("/seen?gate=" .. its_gate .. "-tried")) == "true\n"
    end, 60)
    return request, its_gate
  end

  local other, other_gate = scene.inside(server, "/hold", stage.semaphore(1), 1)
  for _ = 1, 2 do
    local request, its_gate = begin "/try"
    is_held(name, slots, permits)
    scene.open(server, its_gate)
    assert.equal("200 released\n", scene.answer(request))
    is_free(name, slots, permits)
    request, its_gate = begin "/close" -- releases what is held, while the request goes on
    is_free(name, slots, permits)
    scene.open(server, its_gate)
    assert.equal("200 closed\n", scene.answer(request))
    assert.equal("true\n", (select(2, server:get(("/connect?file=%s&name=%s"):format(FILE, name)))))
  end
  scene.open(server, other_gate) -- a request that came before is served by the same worker
  assert.equal("200 1 true\n", scene.answer(other))
  assert.same({ worker }, server:workers())
  assert.is_nil(server:errors():find("signal 11", 1, true))
end)
