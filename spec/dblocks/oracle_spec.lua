-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- db-locks by the statements for Oracle, in H2, which has a mode for them. Nothing here has run on Oracle. All users
-- that can connect to H2 by this protocol may do everything, so permissions are not tried.
local dblocks = require "dblocks"
local fails = require "spec.dblocks.support.fails"
local sql = require "spec.dblocks.support.sql"
local store = require "spec.dblocks.support.stores.oracle"

local scene = sql.scene("H2 in Oracle mode", store, {
  dialect = "oracle", trips = { acquire = 2, release = 1, read = 2, leave = 2 },
})
local connect = scene.connect

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
