-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

local assert = require "luassert"

--- Asserts a failure: nil, a message that begins with the code, the code. Returns the message.
return function(code, result, message, actual)
  assert.is_nil(result)
  assert.equal(code, actual, message)
  assert.equal(code .. ": ", message:sub(1, #code + 2))
  return message
end
