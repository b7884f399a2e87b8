-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Every event loop meets the requirements of sessions over bytes.
local conformance = require "spec.support.driver_conformance"
local loops = require "spec.support.loops"

for _, loop in ipairs(loops) do
  describe("the event loop of " .. loop.name, function()
    if loop.driver then
      conformance(it, loop.driver, loop.run)
    else
      pending("is not there")
    end
  end)
end
