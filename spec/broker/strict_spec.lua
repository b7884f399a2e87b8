-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A program with strict globals, whose locale has a comma in numbers, uses every kind of lock. The rest of both rocks:
-- spec/unit/lua/locale_spec.lua.
local gate = require "spec.support.gate"
local locale = require "spec.support.locale"
local loops = require "spec.support.loops"
local process = require "spec.support.process"
local stage = require "spec.support.stage"

stage.tidy()

-- Tells the spec when it holds the mutex, and releases it then.
local PROGRAM = [[
  local mutex, name, driver = ...
  local loop, values = require("spec.support.loops")[driver], require "spec.support.programs.values"
  require "spec.support.programs.strict"
  assert(os.setlocale "de_DE.UTF-8")

  local function work()
    local conn = assert(require("amqplocks").connect(nil, { driver = loop and loop.option, timeout = 30.5 }))
    local metrics = require("amqplocks.metrics").new()
    metrics.listen(conn)
    local admin, permits = conn:admin(name), conn:token_semaphore(name)
    assert(admin:resize(2) and permits:resize(1))
    for _, lock in ipairs { conn:semaphore(name), permits, conn:mutex(mutex, { fenced = true }), conn:fast_mutex(mutex),
                            conn:rwlock(mutex):reader(), conn:rwlock(mutex):writer() } do
      assert(assert(lock:acquire { timeout = 30.5 }):release())
    end
    assert(conn:elect(mutex, { stop = function() return true end }, print))
    assert(conn:mutex(mutex):forget_fence() and permits:destroy() and admin:destroy())
    local lock = assert(conn:mutex(mutex):acquire { timeout = 30.5 })
    spec:send(values.message(metrics.text(), lock:held()))
    values.receive(spec)
    assert(lock:release())
    conn:close()
  end

  if loop then loop.run(work) else work() end
]]

local function works(driver)
  local mutex, name = gate.name(), stage.name()
  stage.undo(function() stage.delete(mutex .. "-fastmutex") end)
  local one = process.start(locale.environment()):begin(PROGRAM, mutex, name, driver)
  local text, is_held = one:finish(120)
  assert.is_true(is_held and gate.held("mutex", mutex))
  assert.matches('le="0.001"', text, 1, true)
  assert.is_nil(text:find "%d,%d")
  one:begin ""
  one:finish(120)
  assert.is_false(gate.held("mutex", mutex))
end

describe("strict globals and a locale of its own", function()
  it("are nothing to the native driver", function() works "native" end)

  for _, loop in ipairs(loops) do
    (loop.run and it or pending)(("are nothing to that of %s"):format(loop.name), function() works(loop.name) end)
  end
end)
