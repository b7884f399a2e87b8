-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The end of a session: politely, as long as its timeout lasts, and in any case. Never throws.
local await = require "amqplocks.await"
local pcall = require("amqplocks.protected").pcall

local function begin(driver, session)
  local closing = session:close()
  driver.losses:close()
  return closing
end

local function close(driver, session)
  pcall(await, driver, nil, begin, driver, session)
  session:abort()
  if driver.mind then pcall(driver.mind) end
end

return close
