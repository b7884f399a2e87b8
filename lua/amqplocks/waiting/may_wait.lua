-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Tells whether a call can wait here, in an event loop. It is asked before anything of the call is begun. A call that
-- finds out only when it yields leaves the loop with a coroutine that waits and does not exist: nginx crashes.
local can_yield = require("amqplocks.compat.pcall").can_yield

local WRONG = "a coroutine cannot wait inside a C function that calls Lua (table.sort, string.gsub, require, …), "
  .. "or while it is being closed"

--- `loop`: a table of functions, as docs/drivers.md describes it.
---@return string? wrong, amqplocks.Code? code nil: a call can wait
local function may_wait(loop)
  if loop.check then
    local wrong, code = loop.check()
    if wrong then return wrong, code end
  end
  if not can_yield() then return WRONG, "phase" end
end

return may_wait
