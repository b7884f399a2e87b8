-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The only waiting loop. It is Lua's, and comes back here at least every second (opening a connection takes longer if
-- it must), so that debug hooks, and with them Ctrl-C, get their turn, and so that no C function ever has to yield.
local guard = require "amqplocks.waiting.guard"
local memory = require "amqplocks.compat.no_memory"
local news = require "amqplocks.waiting.notify"

-- Tells people how long they have been waiting for somebody else: at once, and about every second.
local function report(operation, on_wait, told)
  local seconds, reason = operation:waiting()
  if not seconds or told and seconds < told + 1 then return told end
  on_wait(seconds, reason)
  return seconds
end

local function wait(driver, operation, on_wait)
  local told
  news.tell(driver) -- first: what has happened since the last call may be why this one would wait for long
  while not operation:done() do
    driver.wait(operation, on_wait and 1)
    news.tell(driver)
    if on_wait then told = report(operation, on_wait, told) end
  end
  if driver.drain then driver.drain() end -- others may be waiting for what comes last, and is not answered
end

local function result(driver, operation, on_wait)
  wait(driver, operation, on_wait)
  return operation:result()
end

--- Begins an operation by begin(...), waits for it and returns its result: what it gives, or nil, message, code.
-- Where the driver cannot wait nothing is begun: it can be tried elsewhere. An error thrown while waiting (an
-- interrupt, or by `on_wait`) abandons the operation first: whatever it had claimed is undone. So does closing the
-- coroutine that waits; and Lua when it runs out of memory, which is a result like others, `no_memory`.
local function await(driver, on_wait, begin, ...)
  if driver.check then
    local wrong, code = driver.check()
    if wrong then return nil, ("%s: %s"):format(code, wrong), code end
  end
  local operation, message, code = begin(...)
  if not operation then return nil, message, code end
  local fine, first, second, third = guard.call(result, driver, operation, on_wait)
  if fine and third == nil then return first end
  if fine then return first, second, third end
  if first == memory.ERROR then return memory.none() end
  error(first, 0)
end

return await
