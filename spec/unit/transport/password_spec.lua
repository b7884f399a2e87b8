-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Places where a session must leave no copy of a password.
local process = require "spec.support.process"
local program = require "spec.support.program"

after_each(program.clear)
teardown(program.remove)

describe("a session", function()
  local path

  local function build()
    path = path or program.build("spec/support/programs/wiped.c", "librabbitmq libssl libcrypto",
      { flags = "-Isrc " .. process.objects "src/core/*/*.c src/transport/*.c" })
    return path
  end

  for _, transport in ipairs { "native", "loop" } do
    (program.sanitized and pending or it)("leaves no copy of its password on the stack: " .. transport, function()
      assert.same({ 0, "none is left\n" }, { program.run({}, build(), transport) })
    end)
  end
end)
