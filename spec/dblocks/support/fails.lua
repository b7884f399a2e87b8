-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Asserts of failures: nil, a message that begins with the code, the code.
--
--     fails("busy", mutex:try_acquire())        -- returns the message
--     fails.each("refused", locks)              -- each call that asks the database, but for setup
local assert = require "luassert"

local function fails(code, result, message, actual)
  assert.is_nil(result)
  assert.equal(code, actual, message)
  assert.equal(code .. ": ", message:sub(1, #code + 2))
  return message
end

local function each(code, locks)
  local rwlock = locks:rwlock("a", 1)
  fails(code, locks:mutex("a", 1):try_acquire())
  fails(code, locks:mutex("a", 1):acquire { timeout = 0.1 })
  fails(code, rwlock:try_read())
  fails(code, rwlock:try_write())
  fails(code, locks:list())
  fails(code, locks:break_lock("a", 1, "b"))
end

return setmetatable({ each = each }, { __call = function(_, ...) return fails(...) end })
