-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The only loop that waits. It is in Lua, and each step of it returns within a second, or later while a connection is
-- being opened. So debug hooks run, and with them Ctrl-C, and no C function has to yield.
local guard = require "amqplocks.waiting.guard"
local news = require "amqplocks.waiting.notify"

-- Reports to `on_wait` how long the operation has waited for other clients: at once, and then about every second.
local function report(operation, on_wait, told)
  local seconds, reason = operation:waiting()
  if not seconds or told and seconds < told + 1 then return told end
  on_wait(seconds, reason)
  return seconds
end

local function wait(driver, operation, on_wait)
  local told
  news.tell(driver) -- first, as news since the last call may explain a long wait
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

--- Begins an operation by begin(...), waits for it and returns its result, or nil, message, code.
--
-- If the driver cannot wait here, the operation is not begun, and the caller can try elsewhere. An error raised while
-- waiting (an interrupt, or an error in `on_wait`) abandons the operation before it goes on: each claim of the
-- operation is undone. Closing the coroutine that waits does so as well.
--
-- `begin` may also end the operation: it then returns false and the result.
local function await(driver, on_wait, begin, ...)
  if driver.check then
    local wrong, code = driver.check()
    if wrong then return nil, ("%s: %s"):format(code, wrong), code end
  end
  local operation, first, second, third = begin(...)
  if operation == false then return first, second, third end
  if not operation then return nil, first, second end
  local fine
  fine, first, second, third = guard.call(result, driver, operation, on_wait)
  if fine and third == nil then return first end
  if fine then return first, second, third end
  error(first, 0)
end

return await
