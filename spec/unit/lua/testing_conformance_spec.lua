-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The table of the answers that clients get, on the fake; spec/broker/testing_conformance_spec has it on a real broker.
local conformance = require "spec.support.testing_rows"
local testing = require "amqplocks.testing"

describe("amqplocks.testing, as a real broker:", function()
  conformance(it, it, function()
    local world = testing.new()
    return {
      conn = world:connect(), rival = world:connect(), name = "lock", other_name = "other",
      connect = function(opts) return world:connect(opts) end,
      slots = function(count) world:resize("lock", count) end,
      permits = function(count, queue_type) world:permits("lock", count, queue_type) end,
      lose = function(lock) world:lose(lock) end,
    }
  end)
end)
