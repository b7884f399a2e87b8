-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- db-locks on a throw-away Cassandra of one node: see stores/README.md.
local client = require "spec.dblocks.support.cassandra_client"
local dblocks = require "dblocks"
local server = require "spec.support.servers.cassandra"

local cassandra = {}

--- The table, in every Cassandra of the specs.
cassandra.TABLE = "locks.mutexes"

--- Makes the keyspace and the table, by the bridge on this port; returns the client that has done it.
function cassandra.make(port, replicas)
  local raw = client.connect(port)
  local keyspace = "CREATE KEYSPACE locks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': %d}"
  assert(raw:execute(keyspace:format(replicas)))
  assert(dblocks.cassandra(raw, { table = cassandra.TABLE }):setup())
  return raw
end

function cassandra.start()
  local self, reason = server.start(1, { sync = "batch", variant = "v2" })
  if not self then return nil, reason end
  self.address = self:bridge(1)
  self.raw = cassandra.make(self.address, 1)
  return self
end

function cassandra.code(self)
  return ([[
    local client = require "spec.dblocks.support.cassandra_client"
    local opts = ... or {}
    opts.table = %q
    return require("dblocks").cassandra(function() return client.connect(%d) end, opts)
  ]]):format(cassandra.TABLE, self.address)
end

function cassandra.pair(self)
  local one = client.connect(self.address)
  local put = "INSERT INTO %s (resource_type, resource_id, ticket) VALUES ('bare', '1', 'mine') IF NOT EXISTS"
  local delete = "DELETE FROM %s WHERE resource_type = 'bare' AND resource_id = '1' IF ticket = 'mine'"
  return function()
    assert(one:execute(put:format(cassandra.TABLE)))
    assert(one:execute(delete:format(cassandra.TABLE)))
  end
end

return cassandra
