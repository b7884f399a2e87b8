-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The table of the answers that clients get, on a real broker. spec/unit/lua/testing_conformance_spec has it on the
-- fake.
local amqplocks = require "amqplocks"
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local kinds = require "spec.support.kinds"
local conformance = require "spec.support.testing_rows"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

describe("a real broker, as amqplocks.testing:", function()
  local admin

  setup(function() admin = assert(amqplocks.connect()) end)
  teardown(function() admin:close() end)
  stage.tidy()

  conformance(it, operated_it, function()
    local name, other_name, label = stage.name(), stage.name(), client.unique "conformance"
    for _, each in ipairs { name, other_name } do stage.undo(function() stage.destroy(admin, each) end) end
    local conn = stage.connect(nil, { name = label })
    return {
      conn = conn, rival = stage.connect(), name = name, other_name = other_name,
      connect = function(opts) return stage.connect(nil, opts) end,
      slots = function(count) assert(admin:admin(name):resize(count)) end,
      permits = function(count, queue_type)
        assert(admin:token_semaphore(name):resize(count, { queue_type = queue_type }))
      end,
      lose = function(lock)
        broker.suite:close_connection(label .. (conn:stats().opened.quorum > 0 and " quorum" or " holder"))
        until_true(function() return not lock:held() end)
      end,
    }
  end, not kinds.all.quorum_mutex and pending or nil)
end)
