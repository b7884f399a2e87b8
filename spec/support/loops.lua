-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The event loops that specs run in: cqueues, luv, and a test double (select_loop.lua).
--
--     local loop_it = loops.luv.it(it, pending)   -- pending, where the loop is not installed
--     loop_it("waits", function()                 -- in a coroutine of the loop; over when the loop has ended
--       loop.sleep(0.1)                           -- and loop.until_true, loop.together
--     end)
local pcall = require "amqplocks.compat.pcall".pcall
local socket = require "socket"

local pack = table.pack or function(...) return { n = select("#", ...), ... } end

local SECONDS = 120

local loops = {}

-- All loops have `driver`, and on top of that:
--   turn(seconds): runs the loop. True: it has ended; false: the time is over, or it was stopped
--   stop()         makes turn return soon
--   clear()        closes or forgets everything in the loop
local function complete(loop)
  local driver = loop.driver

  --- Runs fn in a coroutine of the loop; returns its results when the loop has ended by itself.
  function loop.run(fn, seconds)
    local results = { n = 2, false, "the loop ended, and the test did not" }
    loop.spawn(function()
      results = pack(pcall(fn))
      if not results[1] then loop.stop() end
    end)
    local ended = loop.turn(seconds or SECONDS)
    if not ended then loop.clear() end
    if results[1] and not ended then error("the loop does not end", 0) end
    if not results[1] then error(results[2], 0) end
    return (table.unpack or unpack)(results, 2, results.n)
  end

  function loop.sleep(seconds)
    local deadline, nothing = socket.gettime() + seconds, driver.condition()
    repeat
      nothing:wait(math.max(0, deadline - socket.gettime()))
    until socket.gettime() >= deadline
  end

  --- As spec/support/until.lua; other coroutines run meanwhile.
  function loop.until_true(fn, seconds)
    local deadline = socket.gettime() + (seconds or SECONDS)
    while true do
      local result, why = fn()
      if result then return result, why end
      if socket.gettime() >= deadline then error("still not true: " .. tostring(why), 2) end
      loop.sleep(0.005)
    end
  end

  --- Runs each function in a coroutine of its own; returns when all have ended. Throws the first error.
  function loop.together(functions)
    local over, running, trouble = driver.condition(), #functions, nil
    for _, fn in ipairs(functions) do
      driver.spawn(function()
        local fine, problem = pcall(fn)
        if not fine then trouble = trouble or { problem } end
        running = running - 1
        over:signal()
      end)
    end
    while running > 0 and not trouble do over:wait() end
    if trouble then error(trouble[1], 0) end
  end

  --- The value for the option `driver` of connect.
  loop.option = loop.name == "select" and driver or loop.name

  function loop.it(it)
    return function(what, fn) it(what, function() loop.run(fn) end) end
  end
end

local function add(name, module, make)
  local fine, needed = pcall(require, module)
  local loop = fine and make(needed) or { it = function(_, pending) return pending end }
  loop.name = name
  if fine then complete(loop) end
  loops[name] = loop
  table.insert(loops, loop)
end

-- ---- cqueues --------------------------------------------------------------------------------------------------------

add("cqueues", "cqueues", function(cqueues)
  local loop, controller, is_stopped = { driver = require "amqplocks.drivers.cqueues" }, nil, nil

  function loop.spawn(fn)
    controller, is_stopped = controller or cqueues.new(), false
    controller:wrap(fn)
  end

  function loop.turn(seconds)
    local deadline = cqueues.monotime() + seconds
    repeat
      local fine, problem = controller:step(deadline - cqueues.monotime())
      if not fine then error(problem, 0) end
      if controller:empty() then return true end
    until is_stopped or cqueues.monotime() >= deadline
    return false
  end

  function loop.stop() is_stopped = true end

  function loop.clear()
    controller = nil
    for _ = 1, 2 do collectgarbage() end
  end

  return loop
end)

-- ---- luv ------------------------------------------------------------------------------------------------------------

add("luv", "luv", function(uv)
  local loop, is_stopped = { driver = require "amqplocks.drivers.luv" }, nil

  function loop.spawn(fn)
    is_stopped = false
    loop.driver.spawn(fn)
  end

  function loop.stop()
    is_stopped = true
    uv.stop()
  end

  function loop.turn(seconds)
    local watchdog = uv.new_timer()
    uv.update_time()
    watchdog:start(math.ceil(seconds * 1000), 0, loop.stop)
    watchdog:unref()
    uv.run()
    watchdog:close()
    uv.run "nowait" -- luv 1.44 crashes at the end of a program if a handle is still being closed
    return not is_stopped
  end

  function loop.clear()
    uv.walk(function(handle)
      if not handle:is_closing() then handle:close() end
    end)
    uv.run()
  end

  return loop
end)

-- ---- the test double ------------------------------------------------------------------------------------------------

add("select", "spec.support.select_loop", function(driver)
  return { driver = driver, spawn = driver.spawn, turn = driver.run, stop = driver.stop, clear = driver.clear }
end)

return loops
