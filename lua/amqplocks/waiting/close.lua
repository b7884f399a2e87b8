-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The end of a session: politely, as long as its timeout lasts, and in any case, also when the coroutine that waits
-- for it is closed. Never throws.
local await = require "amqplocks.waiting.await"
local guard = require "amqplocks.waiting.guard"
local pcall = require("amqplocks.compat.pcall").pcall

local function begin(driver, session)
  local closing = session:close()
  driver.losses:close()
  return closing
end

-- Where nobody can wait, or there was no memory, it has not begun: what was lost by then is told of in any case.
local function part(driver, session)
  pcall(await, driver, nil, begin, driver, session)
  pcall(driver.losses.close, driver.losses)
end

-- Telling may take long, so it comes last.
local function close(driver, session)
  if driver.catch_up then pcall(driver.catch_up) end
  pcall(guard.call, part, driver, session)
  session:abort() -- that guarding it took memory, and there was none, changes nothing
  if driver.mind then pcall(driver.mind) end
  pcall(driver.losses.tell, driver.losses)
end

return close
