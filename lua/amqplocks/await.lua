-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The only waiting loop. It is Lua's, and comes back here at least every second (opening a connection takes longer if
-- it must), so that debug hooks, and with them Ctrl-C, get their turn, and so that no C function ever has to yield.

local function tell(driver)
  for level, message in driver.news do
    if driver.log then driver.log(level, message) end
  end
  driver.losses:tell()
end

local function wait(driver, operation)
  tell(driver) -- before anything else: what has happened since the last call may be why this one would wait for long
  while not operation:done() do
    driver.wait(operation)
    tell(driver)
  end
end

local function dropped(operation, ...)
  operation:drop()
  return ...
end

--- Waits for an operation and returns its result: what it gives, or nil, message, code. An error thrown while waiting
-- (an interrupt) abandons the operation first: whatever it had claimed is undone.
local function await(driver, operation)
  local fine, problem = pcall(wait, driver, operation)
  if not fine then
    operation:drop()
    error(problem, 0)
  end
  return dropped(operation, operation:result())
end

return await
