-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A client publishes faster than the broker accepts messages: flow control (back-pressure).
local process = require "spec.support.process"

local PUBLISH = [[
  local url, queue, seconds = ...
  local client, socket = require "spec.support.client", require "socket"
  local link = assert(client.connect(url))
  assert(link:declare(queue, { exclusive = true, arguments = { ["x-max-length"] = 1000 } }))
  local channel, deadline, body = link:channel(), socket.gettime() + seconds, ("x"):rep(4000)
  while socket.gettime() < deadline do
    for _ = 1, 100 do channel:publish{ routing_key = queue, body = body } end
    link:flush()
  end
  link:abort()
  return true
]]

return {
  name = "flood", weight = 0.5,
  strike = function(stage, random)
    local node, seconds = stage.nodes[random(#stage.nodes)], 1 + random() * 2
    local number = stage:strike{ fault = "flood", lane = "*", hinders = 1 }
    local one = process.start()
    one:begin(PUBLISH, node.url, stage.prefix .. ".flood", seconds)
    return seconds + 1, function()
      one:kill()
      stage:over(number)
    end
  end,
}
