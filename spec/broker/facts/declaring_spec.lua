-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A race inside RabbitMQ, which the model broker does not have.
local scene = require "spec.broker.facts.scene"
local socket = require "socket"

describe("a consumer at a quorum queue that another client is just declaring", function ()
  after_each(scene.clear)

  -- Why an acquire of quorum permits begins again on another connection. 4.3 does it, too, but seldom.
  it("may cost its connection, and a later one does not", function ()
    local maker = scene.connect()
    local is_old, stop = maker.server.version:find("^3%.10%."), socket.gettime() + 20
    local is_seen = not is_old
    repeat
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
      is_seen = is_seen or not answer
    until is_seen or socket.gettime() >= stop
    if not is_seen then pending "it takes luck, and there was none in 20 s" end
  end)
end)
