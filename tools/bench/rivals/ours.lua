-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The library's locks, behind the interface of the other locks.
local amqplocks = require "amqplocks"

local ours = {}
local client = {}
client.__index = client

-- Kinds that are not named as a method of a connection.
local KINDS = {
  quorum_mutex = { "fast_mutex", { queue_type = "quorum" } },
  retained_mutex = { "mutex", { retain = 600 } },
}

--- `kind`: "fast_mutex", "quorum_mutex" (one for clusters), "mutex", "retained_mutex", "semaphore" or
-- "token_semaphore". `bound`: the seconds after which a silent holder has lost its lock; a broker ends its connection
-- after two to three heartbeats.
function ours.open(url, name, bound, kind)
  local conn = assert(amqplocks.connect(url, { heartbeat = math.floor(bound / 3) }))
  local method, options = kind, nil
  if KINDS[kind] then method, options = KINDS[kind][1], KINDS[kind][2] end
  return setmetatable({ conn = conn, resource = conn[method](conn, name, options) }, client)
end

function client:acquire() self.lock = assert(self.resource:acquire()) end

function client:release() assert(self.lock:release()) end

function client:close() self.conn:close() end

return ours
