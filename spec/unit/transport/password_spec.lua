-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Places where a session must leave no copy of a password.
local process = require "spec.support.process"
local program = require "spec.support.program"

after_each(program.clear)
teardown(program.remove)

-- The objects of the sources that there are today, not what an older build has left.
local PLACE = (os.getenv "AMQPLOCKS_REPLAY" or ""):gsub("/fuzz/replay%-$", "/objects")
local OBJECTS = process.shell("sh", "-c", "echo src/core/*/*.c src/transport/*.c")
  :gsub("src/(%S+)%.c", PLACE .. "/%1.o"):gsub("\n", "")

describe("a session", function()
  local path

  local function build()
    path = path or program.build("spec/support/programs/wiped.c", "librabbitmq libssl libcrypto",
      { flags = "-Isrc " .. OBJECTS })
    return path
  end

  for _, transport in ipairs { "native", "loop" } do
    (program.sanitized and pending or it)("leaves no copy of its password on the stack: " .. transport, function()
      assert.same({ 0, "none is left\n" }, { program.run({}, build(), transport) })
    end)
  end
end)
