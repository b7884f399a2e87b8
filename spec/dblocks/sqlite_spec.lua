-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- db-locks in SQLite.
local conformance = require "spec.dblocks.support.conformance"
local dblocks = require "dblocks"
local fails = require "spec.dblocks.support.fails"
local sql = require "spec.dblocks.support.sql"
local store = require "spec.dblocks.support.stores.sqlite"

local file

setup(function() file = assert(store.start()) end)
teardown(function() file:stop() end)

local function connect() return assert(store.connect(file)) end

local function options(opts)
  opts = opts or {}
  opts.dialect = "sqlite"
  return opts
end

describe("db-locks in SQLite:", function()
  conformance {
    connect = function(opts) return dblocks.sql(connect, options(opts)) end,
    code = function() return store.code(file) end,
  }
end)

describe("bad days of SQLite:", function()
  sql.days {
    dialect = "sqlite", connect = connect, code = function() return store.connection(file) end, begin = "BEGIN",
    trips = { acquire = 2, release = 1, read = 2, leave = 2 },
  }
end)

local function plain(one) return dblocks.sql(one or connect(), { dialect = "sqlite" }) end

it("another connection that writes for long makes a step contended, and nothing was changed", function()
  local writer, one = connect(), connect()
  assert(writer:execute "BEGIN EXCLUSIVE")
  assert(one:execute "PRAGMA busy_timeout = 10")
  fails("contended", plain(one):mutex("a", 1):try_acquire())
  fails("contended", plain(one):list())
  assert.equal(10, sql.rows(one, "PRAGMA busy_timeout")[1][1])
  assert(writer:execute "ROLLBACK")
  assert.is_true(assert(plain(one):mutex("a", 1):try_acquire()):release())
  writer:close()
end)

it("patience is lent for each step, and taken back", function()
  local one, seen = connect(), {}
  local watched = {}
  function watched.execute(_, text)
    local timeout = text:match "busy_timeout = (%d+)"
    if timeout then table.insert(seen, tonumber(timeout)) end
    return one:execute(text)
  end
  local locks = dblocks.sql(watched, { dialect = "sqlite" })
  assert.is_true(assert(locks:mutex("a", 2):try_acquire()):release())
  assert.same({ 2000, 0, 2000, 0 }, seen)
  seen = {}
  assert(one:execute "BEGIN")
  fails("in_transaction", locks:mutex("a", 2):try_acquire())
  assert.same({ 2000, 0 }, seen)
  assert(one:execute "COMMIT")
  one:execute("PRAGMA busy_timeout = 7"):close()
  seen = {}
  assert.is_true(assert(locks:mutex("a", 2):try_acquire()):release())
  assert.same({}, seen)
end)

it("a guard with a WAL keeps the lock, and is contended to a transaction that looked before break_lock", function()
  local other = assert(store.start())
  local work, another = store.connect(other), store.connect(other)
  work:execute("PRAGMA journal_mode = WAL"):close()
  local locks = plain(store.connect(other))
  local lock = assert(locks:mutex("a", 1):try_acquire())
  assert(work:execute "BEGIN")
  assert.is_true(lock:guard(work))
  fails("contended", plain(another):break_lock("a", 1, lock.ticket))
  assert(work:execute "COMMIT" and work:execute "BEGIN")
  assert.equal(1, #sql.rows(work, "SELECT * FROM mutexes"))
  assert.is_true(plain(another):break_lock("a", 1, lock.ticket))
  fails("contended", lock:guard(work))
  assert(work:execute "ROLLBACK" and work:execute "BEGIN")
  fails("lost", lock:guard(work))
  work:close()
  another:close()
  other:stop()
end)

it("a file that cannot be written is refused", function()
  local one = connect()
  assert(one:execute "PRAGMA query_only = 1")
  fails("refused", plain(one):mutex("a", 1):try_acquire())
  fails("refused", plain(one):rwlock("a", 1):try_read())
  assert.same({}, plain(one):list())
end)

describe("setup says unsafe of", function()
  it("what a crash may undo", function()
    for setting, words in pairs{
      ["PRAGMA synchronous = OFF"] = "synchronous is OFF",
      ["PRAGMA journal_mode = MEMORY"] = "journal_mode is memory",
      ["PRAGMA journal_mode = OFF"] = "journal_mode is off",
    } do
      local one = connect()
      local cursor = one:execute(setting)
      if type(cursor) == "userdata" then cursor:close() end
      local message = fails("unsafe", plain(one):setup())
      assert.is_truthy(message:find(words, 1, true), message)
    end
    local one = require("luasql.sqlite3").sqlite3():connect ":memory:"
    fails("unsafe", plain(one):setup())
    assert(plain(one):mutex("a", 1):try_acquire())
  end)

  it("a table that only one connection sees", function()
    local one = connect()
    assert(one:execute(require("dblocks.sql").statement("sqlite", "temp.Mutexes")))
    fails("unsafe", plain(one):setup())
    fails("unsafe", dblocks.sql(one, { dialect = "sqlite", table = "temp.mutexes" }):setup())
    assert.is_true(dblocks.sql(one, { dialect = "sqlite", table = "main.mutexes" }):setup())
    assert(one:execute "DROP TABLE temp.mutexes")
    assert.is_true(plain(one):setup())
  end)

  it("an attached database, as it is set up itself", function()
    local one, other = connect(), assert(store.start())
    assert(one:execute "ATTACH ':memory:' AS side")
    fails("unsafe", dblocks.sql(one, { dialect = "sqlite", table = "side.mutexes" }):setup())
    assert(one:execute("ATTACH '" .. other.path .. "' AS file"))
    local locks = dblocks.sql(one, { dialect = "sqlite", table = "file.mutexes" })
    assert.is_true(locks:setup())
    assert(one:execute "PRAGMA file.synchronous = OFF")
    fails("unsafe", locks:setup())
    one:close()
    other:stop()
  end)

  it("a WAL that is not written at once", function()
    local other = assert(store.start())
    local one = store.connect(other)
    one:execute("PRAGMA journal_mode = WAL"):close()
    assert.is_true(plain(one):setup())
    assert(one:execute "PRAGMA synchronous = NORMAL")
    fails("unsafe", plain(one):setup())
    assert(one:execute "PRAGMA synchronous = FULL")
    local lock = assert(plain(one):mutex("a", 1):try_acquire())
    assert.is_true(lock:release())
    one:close()
    other:stop()
  end)
end)
