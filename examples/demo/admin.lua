-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors
--
-- The administrator of the demo. It prints when it begins and when it is done; ledger.lua relies on the order of lines.
--
--   admin.lua SEMAPHORE create|add|remove SLOTS
--   admin.lua SEMAPHORE destroy

local amqplocks = require "amqplocks"

local name, action, slots = arg[1], arg[2], tonumber(arg[3])
io.stdout:setvbuf "line"

local conn = assert(amqplocks.connect())
local admin = conn:admin(name)

print("admin", "begins", action, slots)
local result = assert(admin[action](admin, slots))
print("admin", "ends", action, result)

conn:close()
