-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Closes a session: in order, within its timeout, and then by force. It is also closed if the coroutine that waits for
-- this is closed. Never raises an error.
local await = require "amqplocks.waiting.await"
local guard = require "amqplocks.waiting.guard"
local pcall = require("amqplocks.compat.pcall").pcall

local function begin(driver, session)
  local closing = session:close()
  driver.losses:close()
  return closing
end

-- If the caller cannot wait, or there is no memory, the close has not begun. Losses up to now are noted in any case.
local function part(driver, session)
  pcall(await, driver, nil, begin, driver, session)
  pcall(driver.losses.close, driver.losses)
end

-- The reports of losses may take long, so they come last.
local function close(driver, session)
  pcall(guard.call, part, driver, session)
  session:abort() -- also if guard.call() failed for lack of memory
  if driver.mind then pcall(driver.mind) end
  pcall(driver.losses.tell, driver.losses)
end

return close
