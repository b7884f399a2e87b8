-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- db-locks in PostgreSQL.
local conformance = require "spec.dblocks.support.conformance"
local dblocks = require "dblocks"
local fails = require "spec.dblocks.support.fails"
local sql = require "spec.dblocks.support.sql"
local store = require "spec.dblocks.support.stores.postgres"

local scene = sql.scene("PostgreSQL", store, {
  dialect = "postgres", begin = "BEGIN", waits = true, trips = { acquire = 1, release = 1, read = 2, leave = 2 },
})
local connect, options = scene.connect, scene.options

local function plain(one) return dblocks.sql(one, { dialect = "postgres" }) end

for _, level in ipairs{ "REPEATABLE READ", "SERIALIZABLE" } do
  local statement = "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL " .. level

  local function isolated()
    local one = connect()
    assert(one:execute(statement))
    return one
  end

  describe(("db-locks in PostgreSQL, %s:"):format(level), function()
    conformance {
      connect = function(opts) return dblocks.sql(isolated, options(opts)) end,
      code = function()
        return ([[
          local opts = ...
          opts.dialect = "postgres"
          return require("dblocks").sql(function()
            local one = (function() %s end)()
            assert(one:execute %q)
            return one
          end, opts)
        ]]):format(scene.code(), statement)
      end,
    }
  end)
end

-- SERIALIZABLE may refuse a statement because of others on other rows.
it("a serialization failure of SERIALIZABLE that comes again and again is not seen by the caller", function()
  local one, other = connect(), connect()
  assert(one:execute "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE")
  assert(other:execute [[
    CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN
        IF current_setting('transaction_isolation') = 'serializable' THEN RAISE SQLSTATE '40001'; END IF;
        RETURN coalesce(NEW, OLD);
      END $$]])
  assert(other:execute [[
    CREATE TRIGGER fails BEFORE INSERT OR UPDATE OR DELETE ON mutexes FOR EACH ROW EXECUTE FUNCTION fail()]])
  local locks = plain(one)
  assert.is_true(assert(locks:mutex("a", 1):try_acquire()):release())
  local first, second = assert(locks:rwlock("a", 1):try_read()), assert(locks:rwlock("a", 1):try_read())
  assert.is_true(first:release() and second:release())
  assert(other:execute "DROP FUNCTION fail CASCADE")
end)

it("a lock_timeout, however short makes a step contended, and acquire waits on", function()
  local function hasty()
    local one = connect()
    assert(one:execute "SET lock_timeout = '50ms'")
    return one
  end
  local other = connect()
  assert(other:execute "BEGIN")
  assert(other:execute "INSERT INTO mutexes (resource_type, resource_id, ticket, acquired_at) VALUES ('a','1','x',1)")
  fails("contended", dblocks.sql(hasty, options()):mutex("a", 1):try_acquire())
  local pauses, sleep = 0, require "socket".sleep
  local locks = dblocks.sql(hasty, options { sleep = function(seconds)
    pauses = pauses + 1
    if pauses == 2 then assert(other:execute "ROLLBACK") end
    sleep(seconds)
  end })
  assert.is_true(assert(locks:mutex("a", 1):acquire { timeout = 60 }):release())
end)

it("a transaction in which an error came is in_transaction, too", function()
  local one = connect()
  assert(one:execute "BEGIN")
  assert.is_nil(one:execute "SELECT nonsense")
  local locks = plain(one)
  fails.each("in_transaction", locks)
  fails("in_transaction", locks:setup())
  assert(one:execute "ROLLBACK")
  assert.is_true(assert(locks:mutex("a", 1):try_acquire()):release())
end)

describe("a guard", function()
  local locks, work

  before_each(function() locks, work = plain(connect()), connect() end)
  after_each(function() work:close() end)

  local function begin(level) assert(work:execute("BEGIN ISOLATION LEVEL " .. level)) end

  -- Whether the transaction reads from a snapshot that it has when break_lock comes.
  for level, code in pairs{
    ["READ COMMITTED"] = "lost", ["REPEATABLE READ"] = "contended", SERIALIZABLE = "contended" } do
    it(("in %s, after break_lock, is %s to a transaction that has looked before, and lost to the next"):format(level,
      code), function()
      for _, verb in ipairs{ "try_read", "try_write" } do
        local rwlock = locks:rwlock("guard", 1)
        local lock = assert(rwlock[verb](rwlock))
        begin(level)
        assert.equal("1", sql.rows(work, "SELECT count(*) FROM mutexes WHERE resource_type = 'guard'")[1][1])
        assert.is_true(locks:break_lock("guard", 1, lock.ticket))
        fails(code, lock:guard(work))
        assert(work:execute "ROLLBACK")
        begin(level)
        fails("lost", lock:guard(work))
        lock = assert(rwlock[verb](rwlock)) -- younger than a snapshot
        if code == "lost" then assert.is_true(lock:guard(work)) else fails("lost", lock:guard(work)) end
        assert(work:execute "ROLLBACK")
        assert.is_true(lock:release())
      end
    end)
  end

  it("lets others read beside it, and find the lock busy; readers come and go after it", function()
    local lock, second = assert(locks:rwlock("guard", 2):try_read()), assert(locks:rwlock("guard", 2):try_read())
    local other = connect()
    begin "READ COMMITTED"
    assert(other:execute "BEGIN")
    assert(lock:guard(work) and second:guard(other))
    fails("busy", locks:mutex("guard", 2):try_acquire())
    assert.is_true(lock:verify())
    local hasty = connect()
    assert(hasty:execute "SET lock_timeout = '50ms'")
    fails("contended", plain(hasty):rwlock("guard", 2):try_read())
    assert(work:execute "COMMIT" and other:execute "COMMIT")
    assert.is_true(lock:release() and second:release())
  end)

  it("is contended while others keep the row locked, if there is a lock_timeout", function()
    local lock, other = assert(locks:mutex("guard", 3):try_acquire()), connect()
    assert(other:execute "BEGIN")
    assert(other:execute "DELETE FROM mutexes WHERE resource_type = 'guard'")
    begin "READ COMMITTED"
    assert(work:execute "SET LOCAL lock_timeout = '50ms'")
    fails("contended", lock:guard(work))
    assert(work:execute "ROLLBACK" and other:execute "ROLLBACK")
    begin "READ COMMITTED"
    assert.is_true(lock:guard(work))
    work:execute "ROLLBACK"
    assert.is_true(lock:release())
  end)

  it("ends with a savepoint that was made before, and is refused in a transaction that only reads or has failed",
    function()
      local lock = assert(locks:mutex("guard", 4):try_acquire())
      begin "READ COMMITTED"
      assert(work:execute "SAVEPOINT before")
      assert(lock:guard(work))
      assert(work:execute "ROLLBACK TO SAVEPOINT before")
      assert.is_true(locks:break_lock("guard", 4, lock.ticket))
      fails("lost", lock:guard(work))
      assert(work:execute "ROLLBACK")
      lock = assert(locks:mutex("guard", 4):try_acquire())
      begin "READ COMMITTED READ ONLY"
      fails("refused", lock:guard(work))
      fails("refused", lock:guard(work))
      assert(work:execute "ROLLBACK")
      assert.is_true(lock:release())
    end)
end)

describe("permissions", function()
  setup(function()
    local one = connect()
    assert(one:execute "CREATE ROLE reader LOGIN")
    assert(one:execute "CREATE ROLE stranger LOGIN")
    assert(one:execute "GRANT SELECT ON mutexes TO reader")
    one:close()
  end)

  local function as(user)
    return plain(require("spec.support.servers.postgres").connect(scene.server().address, user))
  end

  sql.permissions(as, function() return plain(connect()) end)

  it("of a guard are SELECT and UPDATE", function()
    local one, lock = connect(), assert(plain(connect()):mutex("a", 1):try_acquire())
    local work = require("spec.support.servers.postgres").connect(scene.server().address, "reader")
    assert(work:execute "BEGIN")
    fails("refused", lock:guard(work))
    assert(work:execute "ROLLBACK")
    assert(one:execute "GRANT UPDATE ON mutexes TO reader")
    assert(work:execute "BEGIN")
    assert.is_true(lock:guard(work))
    assert(work:execute "ROLLBACK")
    assert(one:execute "REVOKE UPDATE ON mutexes FROM reader")
    assert.is_true(lock:release())
  end)
end)

it("a table without a primary key is refused: nothing would be exclusive", function()
  local one = connect()
  assert(one:execute "CREATE TABLE loose AS SELECT * FROM mutexes")
  local locks = dblocks.sql(one, { dialect = "postgres", table = "loose" })
  fails("refused", locks:mutex("a", 1):try_acquire())
  fails("refused", locks:rwlock("a", 1):try_read())
end)

describe("setup says unsafe of", function()
  it("synchronous_commit = off", function()
    local one = connect()
    assert(one:execute "SET synchronous_commit = off")
    fails("unsafe", plain(one):setup())
  end)

  it("tables that a crash empties, and that only one connection sees", function()
    local one = connect()
    assert(one:execute "CREATE UNLOGGED TABLE rash (LIKE mutexes INCLUDING ALL)")
    fails("unsafe", dblocks.sql(one, { dialect = "postgres", table = "rash" }):setup())
    assert(one:execute "CREATE TEMPORARY TABLE own (LIKE mutexes INCLUDING ALL)")
    fails("unsafe", dblocks.sql(one, { dialect = "postgres", table = "own" }):setup())
  end)

  it("columns that pad their words with spaces", function()
    local one = connect()
    assert(one:execute "CREATE TABLE padded (LIKE mutexes INCLUDING ALL)")
    local locks = dblocks.sql(one, { dialect = "postgres", table = "padded" })
    assert.is_true(locks:setup())
    assert(one:execute "ALTER TABLE padded ALTER ticket TYPE CHAR(64)")
    assert.is_truthy(fails("unsafe", locks:setup()):find "column ticket is a CHAR")
  end)
end)
