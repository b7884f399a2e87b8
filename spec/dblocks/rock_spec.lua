-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The rock db-locks, installed as a user would, and used without this checkout and without amqp-locks.
local process = require "spec.support.process"
local store = require "spec.dblocks.support.stores.redis"

local tree, server

setup(function()
  tree = process.directory()
  server = assert(store.start())
end)

teardown(function()
  server:stop()
  process.shell("rm", "-rf", tree)
end)

local VERSION = _VERSION:match "%d%.%d"

local PROGRAM = [[
  package.path = %q
  local redis = dofile "/usr/share/lua/5.3/redis.lua"
  local dblocks = require "dblocks"
  local locks = dblocks.redis(function() return redis.connect("127.0.0.1", %d) end)
  assert(locks:setup())
  assert(assert(locks:mutex("rock", 1):acquire { timeout = 5 }):release())
  for _, module in ipairs{ "redis", "sql", "cassandra" } do require("dblocks." .. module) end
  for name in pairs(package.loaded) do assert(not name:find "^amqplocks", name) end
  print(debug.getinfo(dblocks.redis, "S").source)
]]

it("the rock has all its modules, and needs none of amqp-locks", function()
  process.shell("sh", "-c", 'cd db-locks && exec luarocks --lua-version "$1" --tree "$2" make', "sh", VERSION, tree)
  local share = tree .. "/share/lua/" .. VERSION
  assert.equal("dblocks\n", process.shell("ls", share))
  local others = package.path:gsub("[^;]*/lua/%?[^;]*;", function(entry) return entry:find "^/usr/" and entry or "" end)
  local path = ("%s/?.lua;%s/?/init.lua;%s"):format(share, share, others)
  local output = process.run_lua(PROGRAM:format(path, server.address))
  assert.equal(("@%s/dblocks/init.lua\n"):format(share), output)
end)
