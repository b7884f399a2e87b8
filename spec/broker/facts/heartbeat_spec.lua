-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The consequences of missing heartbeats. Slow, so only with AMQPLOCKS_SOAK=1.
local scene = require "spec.broker.facts.scene"
local until_true = require "spec.support.until"

local soak_it = os.getenv "AMQPLOCKS_SOAK" == "1" and it or pending

describe("a client with a heartbeat of one second", function ()
  after_each(scene.clear)

  soak_it("that falls silent loses its connection and its queue, though it reads the broker's heartbeats", function ()
    local silent, other = scene.connect{ heartbeat = 1 }, scene.connect()
    local name = scene.hold(silent:channel(), scene.name())
    silent:await_end(30)
    until_true(function () return not other:exists(name) end)
  end)
end)
