-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The library's locks, behind the interface of the other locks.
local amqplocks = require "amqplocks"

local ours = {}
local client = {}
client.__index = client

--- `kind`: "fast_mutex", "quorum_mutex" (one for clusters), "mutex", "semaphore" or "token_semaphore". `bound`: the
-- seconds after which a silent holder has lost its lock; a broker ends its connection after two to three heartbeats.
function ours.open(url, name, bound, kind)
  local conn = assert(amqplocks.connect(url, { heartbeat = math.floor(bound / 3) }))
  local for_clusters = kind == "quorum_mutex"
  local method, options = for_clusters and "fast_mutex" or kind, for_clusters and { queue_type = "quorum" } or nil
  return setmetatable({ conn = conn, resource = conn[method](conn, name, options) }, client)
end

function client:acquire() self.lock = assert(self.resource:acquire()) end

function client:release() assert(self.lock:release()) end

function client:close() self.conn:close() end

return ours
