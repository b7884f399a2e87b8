-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- db-locks by the statements for Oracle, in H2, which has a mode for them. Nothing here has run on Oracle. All users
-- that can connect to H2 by this protocol may do everything, so permissions are not tried.
local conformance = require "spec.dblocks.support.conformance"
local dblocks = require "dblocks"
local fails = require "spec.dblocks.support.fails"
local process = require "spec.support.process"
local sql = require "spec.dblocks.support.sql"
local store = require "spec.dblocks.support.stores.oracle"

local server, data

setup(function()
  data = process.directory()
  server = assert(store.start { data = data })
end)

teardown(function()
  server:stop()
  process.shell("rm", "-rf", data)
end)

local function connect() return assert(store.connect(server)) end

local function options(opts)
  opts = opts or {}
  opts.dialect = "oracle"
  return opts
end

local days = {
  dialect = "oracle", connect = connect, begin = nil,
  trips = { acquire = 2, release = 1, read = 2, leave = 2 },
  code = function() return store.connection(server) end,
  locks = function() return store.code(server) end,
  port = function() return server.address end,
  way = function(port) return store.connect { address = port } end,
  restart = function()
    server:kill()
    server = assert(store.start({ data = data, port = server.address }, true))
  end,
}

describe("db-locks in H2 in Oracle mode:", function()
  conformance {
    connect = function(opts) return dblocks.sql(connect, options(opts)) end,
    code = function() return store.code(server) end,
  }
end)

describe("bad days of H2 in Oracle mode:", function() sql.days(days) end)

describe("the way to H2 in Oracle mode:", function() sql.ways(days) end)

describe("autocommit that is off, before anything was changed,", function()
  for words, act in pairs{
    acquire = function(locks) return locks:mutex("a", 1):try_acquire() end,
    read = function(locks) return locks:rwlock("a", 1):try_read() end,
  } do
    it("is found by the first " .. words .. ", which can be rolled back", function()
      local one, other = connect(), connect()
      one:setautocommit(false)
      fails("in_transaction", act(dblocks.sql(one, { dialect = "oracle" })))
      one:rollback()
      assert.same({}, sql.rows(other, "SELECT * FROM mutexes"))
      one:setautocommit(true)
      assert.is_true(assert(act(dblocks.sql(one, { dialect = "oracle" }))):release())
    end)
  end
end)
