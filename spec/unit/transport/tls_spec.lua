-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- TLS of the native transport, with peers that behave unlike RabbitMQ.
local process = require "spec.support.process"
local program = require "spec.support.program"

after_each(program.clear)
teardown(program.remove)

local SOURCES = {}
for i, name in ipairs { "socket", "tls", "frames", "headers", "input", "output", "descriptors", "fork" } do
  SOURCES[i] = ("src/transport/%s.c"):format(name)
end
table.insert(SOURCES, "src/core/base/backoff.c")
table.insert(SOURCES, "src/core/base/random.c")
table.insert(SOURCES, "src/core/wire/addresses.c")

describe("a native connection over TLS", function()
  it("waits until it can write, if keys are agreed on anew while its socket takes no bytes", function()
    local path = program.build("spec/support/programs/renegotiate.c", "librabbitmq libssl libcrypto",
      { flags = "-Isrc " .. process.objects(table.concat(SOURCES, " ")) })
    assert.same({ 0, "at first: 1 frame, does not wait to write\nfull: 0 frame, waits to write\n" ..
      "not full: 1 frame, does not wait to write\n" }, { program.run({}, path) })
  end)
end)
