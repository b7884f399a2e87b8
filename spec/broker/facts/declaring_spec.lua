-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A race inside RabbitMQ, which the model broker does not have.
local scene = require "spec.broker.facts.scene"
local until_true = require "spec.support.until"

describe("a consumer at a quorum queue that another client is just declaring", function ()
  after_each(scene.clear)

  -- Why an acquire of quorum permits begins again on another connection. 4.3 does it, too, but seldom.
  it("may cost its connection, and a later one does not", function ()
    local maker = scene.connect()
    local is_old = maker.server.version:find("^3%.10%.")
    until_true(function ()
      local queue, making = scene.name(), maker:channel()
      making:send{ method = "queue.declare", queue = queue, durable = true,
        arguments = { ["x-queue-type"] = "quorum" } }
      maker:flush()
      local connection = scene.connect()
      local answer, reason
      repeat answer, reason = connection:channel():call{ method = "basic.consume", queue = queue }
      until answer or reason.code ~= 404
      assert(making:await("queue.declare-ok"))
      if not answer then
        assert.same({ true, 541 }, { reason.connection, reason.code })
        assert(scene.channel():call{ method = "basic.consume", queue = queue })
      end
      assert(making:call{ method = "queue.delete", queue = queue })
      making:close()
      connection:close()
      return not (answer and is_old)
    end, 600) -- it takes luck, and more of it on a busy machine
  end)
end)
