-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The driver for luv, which is libuv for Lua (docs/drivers.md). A waiting coroutine yields, and the loop resumes it.
-- An error of a coroutine that was resumed here is an error of a callback, which ends the program. There is no TLS, as
-- luv has none.
local guard = require "amqplocks.waiting.guard"
local running = require "amqplocks.compat.pcall".running

-- luv keeps the coroutine that has loaded it, and calls all callbacks in there. Nothing can resume it from there, and
-- once it is collected, luv crashes.
local MISPLACED = 'driver "luv": first require "luv" outside of coroutines, as luv calls back where it was loaded'

local function in_coroutine()
  local thread, is_main = running()
  return thread and not is_main
end

if in_coroutine() and not package.loaded.luv then
  package.loaded[...] = nil -- or Lua 5.1 would not load this module later
  error(MISPLACED, 0)
end

local uv = require "luv"

-- ---- waiting --------------------------------------------------------------------------------------------------------

-- A waiting coroutine is resumed by `idle`, from the loop. The function that wakes it does not resume it, as that may
-- be a finalizer. Until then it is referenced here, as libuv has no reference to it.
local asleep = {} -- luacheck: ignore 241
local ready = {}
local idle

-- Handles that are to be closed. They are referenced here, because luv 1.51 crashes if a finalizer (which may close a
-- socket or wake a coroutine) uses a handle that was collected before. A handle that is not in here any more was
-- closed, or was in a loop that the program has emptied.
local open = {}

-- The open handles that are not needed any more. luv 1.44 crashes if Lua ends while a handle is half closed, as it is
-- until the end of the loop's round: a coroutine that is resumed meanwhile could not call os.exit(…, true). So `check`
-- closes them, after all coroutines of that round. Only a check handle that the program started earlier runs later.
-- Until then `idle` keeps the loop running.
local unwanted = {}
local check

local function enter()
  idle, check = uv.new_idle(), uv.new_check()
  check:unref()
end

enter()

-- Unused timers, for reuse.
local spare = {}

-- When Lua ends, luv runs its loop once more, after handles have been collected. Callbacks in that run must not use
-- them.
local life = { is_over = false }

local function at_the_end(fn)
  if _VERSION ~= "Lua 5.1" then return setmetatable({}, { __gc = fn }) end
  local one = rawget(_G, "newproxy")(true)
  getmetatable(one).__gc = fn
  return one
end

life.sentinel = at_the_end(function() life.is_over = true end)

local function resume(thread)
  local status = coroutine.status(thread)
  if status == "running" then error(MISPLACED, 0) end
  if status ~= "suspended" then return end -- another function has ended it
  local fine, problem = coroutine.resume(thread)
  if not fine then error(debug.traceback(thread, problem), 0) end
end

local run

local function turn()
  if not idle:is_closing() then idle:start(run) end
end

-- Resumes the coroutines that are ready now. Those that become ready meanwhile are resumed after the loop has polled
-- its sockets. It stops `idle` before it takes the list, not after: a finalizer may make a coroutine ready in between.
-- A resumed coroutine may empty the loop and begin anew; the others are resumed nevertheless.
function run()
  local now = ready
  idle:stop()
  ready = {}
  for _, thread in ipairs(now) do resume(thread) end
  if #unwanted > 0 then turn() end
end

local function soon(thread)
  if life.is_over then return end
  table.insert(ready, thread)
  turn()
end

-- The program may have closed all handles of the loop, and begun anew. This is not called while Lua ends.
local function prepare()
  if not idle:is_closing() then return end
  asleep, ready, open, unwanted, spare = {}, {}, {}, {}, {}
  enter()
end

-- `waiter` is a table for one wait.
local function wake(waiter)
  local thread = waiter.thread
  asleep[waiter], waiter.thread = nil, nil
  if thread then soon(thread) end
end

local function keep(handle)
  open[handle] = true
  return handle
end

local function close_unwanted()
  check:stop()
  for _ = 1, #unwanted do
    local handle = table.remove(unwanted)
    if not handle:is_closing() then handle:close() end
    open[handle] = nil
  end
end

local function close(handle)
  if life.is_over or not open[handle] or idle:is_closing() then return end
  table.insert(unwanted, handle)
  check:start(close_unwanted)
  turn()
end

local function milliseconds(seconds) return math.max(1, math.ceil(math.min(seconds, 1e9) * 1000)) end

local function take_timer()
  local timer = table.remove(spare)
  if timer and not timer:is_closing() then return timer end
  return keep(uv.new_timer())
end

-- Wakes `waiter` after `seconds`. Returns a function that stops the timer.
local function start_timer(waiter, seconds)
  local timer = take_timer()
  local function rest()
    if timer and open[timer] and not life.is_over and not timer:is_closing() then
      timer:stop()
      table.insert(spare, timer)
    end
    timer = nil -- it is in `spare` now
  end
  uv.update_time() -- otherwise the time would begin when the loop last read the clock
  timer:start(milliseconds(seconds), 0, function()
    rest()
    wake(waiter)
  end)
  return rest
end

local function leave(waiter)
  local rest = waiter.rest
  asleep[waiter], waiter.thread, waiter.rest = nil, nil, nil
  if rest then rest() end
end

local function suspend() coroutine.yield() end

-- Waits until `waiter` is woken, or the time is over.
local function wait(waiter, seconds)
  prepare()
  asleep[waiter], waiter.thread = true, running()
  waiter.rest = seconds and start_timer(waiter, seconds)
  guard.unless_closed(leave, suspend, waiter)
  leave(waiter) -- also if another function resumed this coroutine
end

local function deadline_of(seconds) return seconds and uv.hrtime() + seconds * 1e9 end

local function left(deadline) return deadline and math.max(0, (deadline - uv.hrtime()) / 1e9) end

-- Waits until get() returns a result, and returns that. nil: the time is over.
local function wait_for(get, waiter, deadline)
  local result = get()
  while not result do
    local allowed = left(deadline)
    if allowed == 0 and waiter.waited then return nil end
    wait(waiter, allowed)
    waiter.waited = true
    result = get()
  end
  return result
end

-- Waits for the result that `begin` passes to its callback. Returns nil and "timeout", or nil and why it could not
-- begin.
local function await(begin, deadline)
  local waiter, answer = {}, nil
  local begun, problem = begin(function(...)
    answer = { ... }
    wake(waiter)
  end)
  if not begun then return nil, problem end
  if not wait_for(function() return answer end, waiter, deadline) then return nil, "timeout" end
  if answer[1] then return nil, answer[1] end
  return answer[2] or true
end

-- ---- sockets --------------------------------------------------------------------------------------------------------

local Socket = {}
Socket.__index = Socket

function Socket:read(seconds)
  if self._ended then return nil, self._ended end
  local waiter = {}
  self._reader = waiter
  self._tcp:read_start(function(problem, bytes)
    self._tcp:read_stop() -- without a reader, bytes stay in the system
    if bytes then self._bytes = bytes else self._ended = problem or "the peer closed the connection" end
    wake(waiter)
  end)
  wait_for(function() return self._bytes or self._ended end, waiter, deadline_of(seconds))
  self._reader = nil
  if not self._closed then self._tcp:read_stop() end
  local bytes = self._bytes
  self._bytes = nil
  if bytes then return bytes end
  return nil, self._ended or "timeout"
end

function Socket:write(bytes, seconds)
  if self._closed then return nil, "the socket was closed" end
  return await(function(callback) return self._tcp:write(bytes, callback) end, deadline_of(seconds))
end

-- libuv notifies a writer of the close, but not a reader. The collector may call this, when no loop runs any more.
function Socket:close()
  if self._closed then return end
  self._closed, self._ended = true, "the socket was closed"
  close(self._tcp)
  if self._reader then wake(self._reader) end
end

-- ---- connecting -----------------------------------------------------------------------------------------------------

local broken_pipe

-- libuv does not protect a program from SIGPIPE when the peer of a socket has closed.
local function survive_broken_pipes()
  if broken_pipe and not broken_pipe:is_closing() then return end
  broken_pipe = uv.new_signal()
  broken_pipe:start("sigpipe", function() end)
  broken_pipe:unref()
end

local function words(problem) return problem == "timeout" and "no answer in time" or problem end

local loop = {}

function loop.resolve(host, seconds)
  local found, problem = await(function(callback)
    return uv.getaddrinfo(host, nil, { socktype = "stream" }, callback)
  end, deadline_of(seconds))
  if not found then return nil, words(problem) end
  local addresses = {}
  for i, one in ipairs(found) do addresses[i] = one.addr end
  return addresses
end

local function dial(address, port, deadline)
  local tcp = keep(uv.new_tcp())
  local connected, problem = await(function(callback) return tcp:connect(address, port, callback) end, deadline)
  if connected then return tcp end
  close(tcp)
  return nil, words(problem)
end

local function dial_any(host, port, deadline)
  local addresses, problem = loop.resolve(host, left(deadline))
  local tcp
  for _, address in ipairs(addresses or {}) do
    tcp, problem = dial(address, port, deadline)
    if tcp then return tcp end
  end
  return nil, problem
end

function loop.connect(host, port, tls, seconds)
  if tls then return nil, 'luv has no TLS: use driver = "native" or "cqueues" for amqps://', "tls" end
  survive_broken_pipes()
  local tcp, problem = dial_any(host, port, deadline_of(seconds))
  if not tcp then return nil, problem, "unreachable" end
  tcp:nodelay(true)
  return setmetatable({ _tcp = tcp }, Socket)
end

-- ---- the loop -------------------------------------------------------------------------------------------------------

local Condition = {}
Condition.__index = Condition

function Condition:wait(seconds)
  local waiter = {}
  table.insert(self._waiting, waiter)
  wait(waiter, seconds)
  for i, one in ipairs(self._waiting) do
    if one == waiter then return table.remove(self._waiting, i) end
  end
end

function Condition:signal()
  local waiting = self._waiting
  self._waiting = {}
  for _, waiter in ipairs(waiting) do wake(waiter) end
end

function loop.condition() return setmetatable({ _waiting = {} }, Condition) end

function loop.spawn(fn)
  prepare()
  soon(coroutine.create(fn))
end

function loop.check()
  if not in_coroutine() then return "only a coroutine can wait, which luv's loop resumes (uv.run())", "phase" end
end

return loop
