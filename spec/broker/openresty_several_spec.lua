-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Requests of a real nginx that hold several locks, several slots, a reentrant mutex, or lead. A client without this
-- library sees which queues are there.
local gate = require "spec.support.gate"
local scene = require "spec.broker.openresty_scene"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

after_each(scene.clear)
teardown(stage.check)

local LOCATIONS = {
  ["= /all"] = [[
    local conn = connect()
    local mutex, slot = conn:mutex(var.arg_mutex), conn:semaphore(var.arg_name)
    local locks, message, code = conn:all{ slot, mutex }:acquire{ timeout = 60 }
    if not locks then return fail(message, code) end
    ngx.ctx.locks = locks
    gates:set("in-" .. var.arg_gate, true)
    await_gate(var.arg_gate)
    ngx.say(tostring(locks:held()))]],
  ["= /count"] = [[
    local count = tonumber(var.arg_count)
    local locks, message, code = connect():semaphore(var.arg_name):acquire{ count = count, timeout = 60 }
    if not locks then return fail(message, code) end
    ngx.ctx.locks = locks
    gates:set("in-" .. var.arg_gate, true)
    await_gate(var.arg_gate)
    ngx.say(#locks.slots, " ", tostring(locks:held()))]],
  ["= /reentrant"] = [[
    local conn = connect()
    local mutex = conn:mutex(var.arg_mutex, { reentrant = true })
    local outer, message, code = mutex:acquire{ timeout = tonumber(var.arg_timeout) }
    if not outer then return fail(message, code) end
    local inner = assert(conn:mutex(var.arg_mutex, { reentrant = true }):try_acquire())
    assert(inner:release())
    gates:set("in-" .. var.arg_gate, true)
    await_gate(var.arg_gate)
    ngx.say(tostring(outer:held()), " ", tostring(outer:release()))]],
  -- A light thread that is killed in `what`; the request goes on.
  ["= /killed"] = [[
    local conn = connect()
    local mutex, slot = conn:mutex(var.arg_mutex), conn:semaphore(var.arg_name)
    local locks, message, code = conn:all{ mutex, slot, conn:rwlock(var.arg_mutex):writer() }:acquire{ timeout = 60 }
    if not locks then return fail(message, code) end
    ngx.ctx.locks = locks
    local is_over
    local thread = ngx.thread.spawn(function()
      if var.arg_what == "release" then locks:release() else conn:close() end
      is_over = true
    end)
    local killed = ngx.thread.kill(thread)
    gates:set("in-" .. var.arg_gate, true)
    await_gate(var.arg_gate)
    ngx.say(tostring(killed and not is_over), " ", tostring(locks:held()))]],
  ["= /elect"] = [[
    local led, word = connect():elect(var.arg_mutex, function(lock)
      gates:set("in-" .. var.arg_gate, true)
      await_gate(var.arg_gate)
      return lock:held() and "led"
    end)
    ngx.say(tostring(led), " ", tostring(word))]],
}

local function start(shared) return scene.start(shared, { workers = 2, locations = LOCATIONS }) end

-- Begins a request; returns it and its gate.
local function begin(server, path)
  local its = scene.gate()
  return server:begin(("%s&gate=%s"):format(path, its)), its
end

local function is_in(server, its) return select(2, server:get("/seen?gate=in-" .. its)) == "true\n" end

local function await_in(server, its)
  until_true(function() return is_in(server, its), server:errors() end)
end

for _, shared in ipairs{ false, true } do
  describe(shared and "on the worker's connection" or "on a connection of its own", function()
    local mutex

    before_each(function() mutex = gate.name() end)

    it("a request that holds several locks leaves all of them when its worker is killed", function()
      local name = stage.semaphore(1)
      local server = scene.start(shared, { locations = LOCATIONS })
      local _, its = begin(server, ("/all?mutex=%s&name=%s"):format(mutex, name))
      await_in(server, its)
      assert.is_true(gate.held("mutex", mutex) and stage.held(name, 1))
      server:kill_worker()
      scene.assert_all_there(name, 1)
      gate.until_free("mutex", mutex)
    end)

    for _, what in ipairs{ "release", "close" } do
      it("all are free when a thread is killed in " .. what .. ", before the request is over", function()
        local name = stage.semaphore(1)
        local server = start(shared)
        local one, its = begin(server, ("/killed?mutex=%s&name=%s&what=%s"):format(mutex, name, what))
        await_in(server, its)
        until_true(function()
          return not gate.held("mutex", mutex) and not gate.held("write", mutex) and stage.free(name, 1)
        end, 60)
        scene.open(server, its)
        assert.equal("200 true false\n", scene.answer(one))
      end)
    end
  end)
end

describe("on the worker's connection", function()
  local mutex

  before_each(function() mutex = gate.name() end)

  it("requests take several slots at once, and one slot beside them", function()
    local name = stage.semaphore(3)
    stage.undo(function() stage.delete(name .. "-manybell") end)
    local server = start(true)
    local path = ("/count?count=2&name=%s"):format(name)
    local first, its = begin(server, path)
    await_in(server, its)
    local single, own = scene.inside(server, "/hold", name, 3)
    local second, others = begin(server, path)
    assert.equal("busy\n", select(2, server:get("/try?name=" .. name)))
    assert.is_false(is_in(server, others))
    scene.open(server, its)
    assert.equal("200 2 true\n", scene.answer(first))
    await_in(server, others)
    scene.open(server, own)
    scene.open(server, others)
    assert.equal("200 2 true\n", scene.answer(second))
    assert.equal(200, (single:finish()))
    scene.assert_all_there(name, 3)
  end)

  it("a request takes its reentrant mutex again, and another request does not", function()
    local server = start(true)
    local path = ("/reentrant?mutex=%s"):format(mutex)
    local one, its = begin(server, path .. "&timeout=60")
    await_in(server, its)
    local other = begin(server, path .. "&timeout=0.2")
    assert.equal(503, (other:finish()))
    assert.is_true(gate.held("mutex", mutex))
    scene.open(server, its)
    assert.equal("200 true true\n", scene.answer(one))
    gate.until_free("mutex", mutex)
  end)

  it("one request leads at a time, and the next one when the election of the first is over", function()
    local server = start(true)
    local path = "/elect?mutex=" .. mutex
    local one, its = begin(server, path)
    await_in(server, its)
    local two, others = begin(server, path)
    assert.is_false(is_in(server, others))
    scene.open(server, its)
    assert.equal("200 true led\n", scene.answer(one))
    await_in(server, others)
    scene.open(server, others)
    assert.equal("200 true led\n", scene.answer(two))
    gate.until_free("mutex", mutex)
  end)
end)
