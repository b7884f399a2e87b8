-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- The library's locks, behind the interface of the other locks.
local amqplocks = require "amqplocks"

local ours = {}
local client = {}
client.__index = client

--- `kind`: "fast_mutex", "mutex", "semaphore" or "token_semaphore".
function ours.open(url, name, heartbeat, kind)
  local conn = assert(amqplocks.connect(url, { heartbeat = heartbeat }))
  return setmetatable({ conn = conn, resource = conn[kind](conn, name) }, client)
end

function client:acquire() self.lock = assert(self.resource:acquire()) end

function client:release() assert(self.lock:release()) end

function client:close() self.conn:close() end

return ours
