-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- db-locks in MariaDB.
local dblocks = require "dblocks"
local fails = require "spec.dblocks.support.fails"
local sql = require "spec.dblocks.support.sql"
local store = require "spec.dblocks.support.stores.mariadb"

local scene = sql.scene("MariaDB", store, {
  dialect = "mariadb", begin = "START TRANSACTION", trips = { acquire = 1, release = 1, read = 2, leave = 2 },
})
local connect, options = scene.connect, scene.options

it("an open transaction of others that has the row locked is waited for as long as MariaDB waits, and told", function()
  local locks = dblocks.sql(function()
    local one = connect()
    one:execute "SET innodb_lock_wait_timeout = 1"
    return one
  end, options())
  assert(locks:setup())
  local other = connect()
  other:execute "START TRANSACTION"
  assert(other:execute("INSERT INTO mutexes (resource_type, resource_id, ticket, acquired_at)"
    .. " VALUES ('a', 'b', 'c', 1)"))
  fails("contended", locks:mutex("a", "b"):try_acquire())
  other:execute "ROLLBACK"
  other:close()
  assert(assert(locks:mutex("a", "b"):try_acquire()):release())
  locks:close()
end)

local function plain(one, name) return dblocks.sql(one, { dialect = "mariadb", table = name }) end

it("a column that is too narrow holds no row with less than was given, in every mode", function()
  local one = connect()
  one:execute "SET SESSION sql_mode = ''"
  assert(one:execute("CREATE TABLE narrow (resource_type VARCHAR(64), resource_id VARCHAR(64), ticket VARCHAR(9),"
    .. " acquired_at BIGINT, active_readers VARCHAR(9), pending_writer VARCHAR(9), revision VARCHAR(64),"
    .. " PRIMARY KEY (resource_type, resource_id))"))
  local locks = plain(one, "narrow")
  fails("refused", locks:mutex("a", 1):try_acquire())
  fails("refused", locks:rwlock("a", 1):try_read())
  assert.same({}, sql.rows(one, "SELECT * FROM narrow"))
  assert.is_true(assert(locks:mutex("a", 1):try_acquire { ticket = "short" }):release())
end)

-- InnoDB reads a row that it locks as it is now, whatever the snapshot of the transaction; or fails.
it("a guard after break_lock is not held, at every level of isolation and with a snapshot from before", function()
  local locks, work = plain(connect()), connect()
  for _, level in ipairs{ "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE" } do
    for strict = 0, 1 do
      local lock = assert(locks:mutex("guard", 1):try_acquire())
      work:execute("SET SESSION TRANSACTION ISOLATION LEVEL " .. level)
      work:execute("SET SESSION innodb_snapshot_isolation = " .. strict)
      work:execute "START TRANSACTION"
      assert.same({}, sql.rows(work, "SELECT * FROM mutexes WHERE resource_type = 'other'"))
      assert.is_true(locks:break_lock("guard", 1, lock.ticket))
      fails(strict == 1 and level ~= "READ COMMITTED" and "contended" or "lost", lock:guard(work))
      work:execute "ROLLBACK"
      work:execute "START TRANSACTION"
      fails("lost", lock:guard(work))
      work:execute "ROLLBACK"
    end
  end
  work:close()
end)

describe("permissions", function()
  setup(function()
    local one = connect()
    assert(one:execute "CREATE USER reader@localhost, stranger@localhost")
    assert(one:execute "GRANT SELECT ON locks.mutexes TO reader@localhost")
    assert(one:execute "GRANT CREATE TEMPORARY TABLES ON locks.* TO stranger@localhost")
    one:close()
  end)

  local function as(user)
    return plain(assert(require("spec.support.servers.mariadb").connect(scene.server().address, user)))
  end

  sql.permissions(as, function() return plain(connect()) end)
end)

describe("setup says unsafe of", function()
  local COLUMNS = "(resource_type VARCHAR(64) NOT NULL, resource_id VARCHAR(64) NOT NULL, ticket VARCHAR(64) NOT NULL,"
    .. " acquired_at BIGINT NOT NULL, active_readers TEXT, pending_writer VARCHAR(96), revision VARCHAR(64), %s) %s"
  local KEY, CHARACTERS = "PRIMARY KEY (resource_type, resource_id)", "COLLATE ascii_bin"

  for words, parts in pairs{
    ["takes A for a"] = { KEY, "COLLATE ascii_general_ci" },
    ["engine is MEMORY"] = { KEY, CHARACTERS .. " ENGINE = MEMORY", "active_readers VARCHAR(100)" },
    ["engine is MyISAM"] = { KEY, CHARACTERS .. " ENGINE = MyISAM" },
    ["primary key is not"] = { "KEY (resource_type)", CHARACTERS },
    ["shorter than 64"] = { KEY, CHARACTERS, "ticket VARCHAR(20)" },
    ["shorter than 65535"] = { KEY, CHARACTERS, "active_readers VARCHAR(100)" },
    ["shorter than 78"] = { KEY, CHARACTERS, "pending_writer VARCHAR(64)" },
    ["is a int"] = { KEY, CHARACTERS, "acquired_at INT" },
    ["is a timestamp"] = { KEY, CHARACTERS, "acquired_at TIMESTAMP" },
  } do
    it("a table whose " .. words, function()
      local one = connect()
      one:execute "DROP TABLE others"
      local columns = COLUMNS:format(parts[1], parts[2])
      if parts[3] then columns = columns:gsub(parts[3]:match "^%S+" .. " [^,]+", parts[3]) end
      assert(one:execute("CREATE TABLE others " .. columns))
      local message = fails("unsafe", plain(one, "others"):setup())
      assert.is_truthy(message:find(words, 1, true), message)
      assert.equal(message, fails("unsafe", plain(one, "locks.others"):setup()))
    end)
  end

  it("tables that only one connection sees, and views", function()
    local one = connect()
    assert(one:execute "CREATE TEMPORARY TABLE own LIKE mutexes")
    fails("unsafe", plain(one, "own"):setup())
    assert(one:execute "CREATE VIEW seen AS SELECT * FROM mutexes")
    fails("unsafe", plain(one, "seen"):setup())
  end)

  it("a log that is not written at once", function()
    local one = connect()
    assert(one:execute "SET GLOBAL innodb_flush_log_at_trx_commit = 2")
    fails("unsafe", plain(one):setup())
    assert(one:execute "SET GLOBAL innodb_flush_log_at_trx_commit = 1")
    assert.is_true(plain(one):setup())
  end)
end)
