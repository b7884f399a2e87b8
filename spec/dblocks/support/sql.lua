-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- What db-locks does on every SQL database, besides conformance.lua: its bad days.
--
--     local scene = sql.scene("PostgreSQL", store, {
--       dialect = "postgres",
--       trips = { acquire = 1, release = 1, read = 2, leave = 2 },
--       begin = "BEGIN",                                   -- how a transaction is begun by hand; nil: it cannot be
--       waits = true,                                      -- for rows that others have locked, without limit
--     })
--     scene.connect()                                      -- a connection of LuaSQL
--     scene.options(opts)                                  -- with the dialect
--     scene.server()                                       -- the server, which runs with its table when the specs run
--
-- Called while busted loads a spec file: it has all that SQL databases have in common tried. `store` is one of stores/.
local busted = require "busted"
local dblocks = require "dblocks"
local conformance = require "spec.dblocks.support.conformance"
local cutter = require "spec.dblocks.support.cutter"
local fails = require "spec.dblocks.support.fails"
local late = require "spec.dblocks.support.late"
local process = require "spec.support.process"
local socket = require "socket"

local after_each, before_each, describe, it = busted.after_each, busted.before_each, busted.describe, busted.it
local assert = require "luassert"

local sql = {}

--- The rows of a query.
function sql.rows(connection, text)
  local cursor, rows = assert(connection:execute(text)), {}
  local row = cursor:fetch({}, "n")
  while row do
    table.insert(rows, row)
    row = cursor:fetch({}, "n")
  end
  cursor:close()
  return rows
end

function sql.days(store)
  local one, locks

  local function plain(name) return dblocks.sql(store.connect(), { dialect = store.dialect, table = name }) end

  before_each(function()
    one = store.connect()
    locks = plain()
  end)

  after_each(function()
    process.clear()
    assert(one:execute "DELETE FROM mutexes")
    one:close()
  end)

  it("round trips are few", function()
    local connection, count = store.connect(), 0
    local counted = setmetatable({}, { __index = function(_, name)
      return function(_, ...)
        local is_setting = name ~= "execute" or (...):find "[Pp][Rr][Aa][Gg][Mm][Aa]" -- of this connection
        if not is_setting then count = count + 1 end
        return connection[name](connection, ...)
      end
    end })
    locks = dblocks.sql(counted, { dialect = store.dialect })
    local function trips(result)
      assert.is_truthy(result)
      local before = count
      count = 0
      return before
    end
    local mutex, rwlock = locks:mutex("trips", 1), locks:rwlock("trips", 1)
    assert.is_true(assert(mutex:try_acquire()):release()) -- Oracle looks once what the connection does
    trips(true)
    local counts, lock = {}, mutex:try_acquire()
    counts.acquire, counts.release = trips(lock), trips(lock:release())
    lock = rwlock:try_read()
    counts.read = trips(lock)
    local second = rwlock:try_read()
    assert.equal(counts.read, trips(second))
    counts.leave = trips(lock:release())
    assert.equal(counts.leave, trips(second:release()))
    assert.same(store.trips, counts)
  end)

  describe("the table", function()
    it("shows its rows to a person", function()
      local lock = assert(locks:mutex("report", 7):try_acquire())
      local reader = assert(locks:rwlock("page", "a"):try_read { ticket = "r1" })
      assert(locks:rwlock("page", "a"):try_read { ticket = "r2" })
      local rows = sql.rows(one, "SELECT resource_type, resource_id, ticket, acquired_at FROM mutexes ORDER BY 1")
      assert.same({ "page", "a", "readers", "report", "7", lock.ticket },
        { rows[1][1], rows[1][2], rows[1][3], rows[2][1], rows[2][2], rows[2][3] })
      assert.is_true(math.abs(tonumber(rows[2][4]) / 1000 - lock.acquired_at) < 0.001)
      local readers = sql.rows(one, "SELECT active_readers FROM mutexes WHERE ticket = 'readers'")[1][1]
      assert.is_truthy(readers:find(("^r1,%.0f r2,%%d+$"):format(reader.acquired_at * 1000)), readers)
    end)

    it("takes the row of a person for a lock, which can be broken", function()
      assert(one:execute "INSERT INTO mutexes (resource_type, resource_id, ticket, acquired_at) VALUES ('a','1','m',1)")
      fails("busy", locks:mutex("a", 1):try_acquire())
      assert.is_true(locks:break_lock("a", 1, "m"))
      assert(locks:mutex("a", 1):try_acquire())
    end)

    it("with readers whom only others know, or have written, is refused, and listed if it can be", function()
      for text, kind in pairs{ NULL = "read", ["'a,1 b'"] = false, ["'it''s,1'"] = false } do
        assert(one:execute "DELETE FROM mutexes")
        assert(one:execute(("INSERT INTO mutexes (resource_type, resource_id, ticket, acquired_at, active_readers)"
          .. " VALUES ('a', '1', 'readers', 1, %s)"):format(text)))
        fails("refused", locks:mutex("a", 1):try_acquire())
        fails("refused", locks:rwlock("a", 1):try_write())
        fails("refused", locks:rwlock("a", 1):read { timeout = 60 })
        if kind then
          assert.same({ kind, "readers", 1 }, { locks:list()[1].kind, locks:list()[1].ticket, #locks:list() })
        else
          fails("refused", locks:list())
          assert.equal(text:sub(2, -2):gsub("''", "'"), sql.rows(one, "SELECT active_readers FROM mutexes")[1][1])
        end
      end
    end)

    it("that is missing is refused, until setup makes it", function()
      local others = plain "not_there"
      fails.each("refused", others)
      assert.is_true(others:setup())
      local lock = assert(others:mutex("a", 1):try_acquire())
      assert(one:execute "DROP TABLE not_there")
      fails("refused", lock:verify())
      fails("refused", lock:release())
    end)

    it("of others is refused by setup", function()
      for _, columns in ipairs{
        "(resource_type VARCHAR(64) NOT NULL, resource_id VARCHAR(64) NOT NULL, ticket VARCHAR(64) NOT NULL,"
          .. " acquired_at BIGINT NOT NULL, PRIMARY KEY (resource_type, resource_id))", -- those of the note
        "(id INTEGER, name VARCHAR(20))",
      } do
        one:execute "DROP TABLE others"
        assert(one:execute("CREATE TABLE others " .. columns))
        local others = plain "others"
        fails("refused", others:setup())
        fails("refused", others:rwlock("a", 1):try_read())
        fails("refused", others:list())
        assert.same({}, sql.rows(one, "SELECT * FROM others"))
        assert(one:execute "DROP TABLE others")
      end
    end)
  end)

  for _, how in ipairs{ "setautocommit(false)", store.begin } do
    it("an open transaction, " .. how .. ": nothing is changed, and it can be rolled back or committed", function()
      assert(plain():mutex("b", 2):try_acquire { ticket = "held" })
      for _, ending in ipairs{ "rollback", "commit" } do
        local mine = store.connect()
        assert(one:execute "DELETE FROM counters")
        if how == "setautocommit(false)" then mine:setautocommit(false) else assert(mine:execute(how)) end
        assert(mine:execute "INSERT INTO counters (n) VALUES (7)")
        locks = dblocks.sql(mine, { dialect = store.dialect })
        fails.each("in_transaction", locks)
        fails("in_transaction", locks:break_lock("b", 2, "held"))
        fails("in_transaction", locks:setup())
        mine[ending](mine)
        assert.equal(ending == "commit" and 1 or 0, #sql.rows(one, "SELECT n FROM counters"))
        assert.equal("held", sql.rows(one, "SELECT ticket FROM mutexes")[1][1])
        if how ~= "setautocommit(false)" then assert(locks:mutex("a", 1):try_acquire()):release() end
        mine:close()
      end
    end)
  end

  describe("a guard", function()
    local work, mutex, rwlock

    before_each(function()
      work, mutex, rwlock = store.connect(), locks:mutex("a", 1), locks:rwlock("a", 1)
      assert(one:execute "DELETE FROM counters")
    end)

    after_each(function() work:close() end)

    local function begin() work:setautocommit(false) end

    -- Another process, with `one` and `locks`.
    local function start()
      local other = process.start()
      other:run(([[
        one = (function() %s end)()
        locks = require("dblocks").sql(one, { dialect = "%s" })
      ]]):format(store.code(), store.dialect))
      return other
    end

    -- Another process tries to break a guarded lock; it can when ending() has ended the guard's transaction.
    local function assert_kept(ticket, ending)
      local other, broken = start(), "return locks:break_lock('a', 1, ...)"
      other:begin(broken, ticket)
      socket.sleep(1)
      if store.waits then assert.is_false(other:finished()) else fails("contended", other:finish()) end
      assert.equal(ticket, locks:list()[1].ticket)
      ending()
      if not store.waits then other:begin(broken, ticket) end
      assert.is_true(other:finish())
      assert.same({}, locks:list())
    end

    for verb, ending in pairs{ try_write = "commit", try_read = "rollback" } do
      it(("keeps a lock from being broken until the end, of %s and %s"):format(verb, ending), function()
        local lock = assert(rwlock[verb](rwlock))
        begin()
        assert.is_true(lock:guard(work))
        assert(work:execute "INSERT INTO counters (n) VALUES (7)")
        assert_kept(lock.ticket, function() work[ending](work) end)
        fails("lost", lock:guard(work))
        work:setautocommit(true)
        assert.equal(ending == "commit" and 1 or 0, #sql.rows(one, "SELECT n FROM counters"))
      end)
    end

    it("of a holder that is killed keeps nothing", function()
      local other = start()
      assert.is_true(other:run [[
        lock = assert(locks:mutex("a", 1):try_acquire { ticket = "t" })
        one:setautocommit(false)
        return lock:guard(one)
      ]])
      assert_kept("t", function() other:kill() end)
    end)

    it("after break_lock, a release or a take-over is told, and the transaction can be rolled back", function()
      local ends = {
        lost = function(lock) assert.is_true(locks:break_lock("a", 1, lock.ticket)) end,
        not_held = function(lock) assert.is_true(lock:release()) end,
      }
      for code, ending in pairs(ends) do
        for _, try in ipairs{ function() return mutex:try_acquire() end, function() return rwlock:try_read() end } do
          local lock = assert(try())
          begin()
          ending(lock)
          assert(try { ticket = "next" })
          assert(work:execute "INSERT INTO counters (n) VALUES (7)")
          fails(code, lock:guard(work))
          work:rollback()
          work:setautocommit(true)
          assert.same({}, sql.rows(one, "SELECT n FROM counters"))
          assert.is_true(assert(locks:list())[1] and locks:break_lock("a", 1, locks:list()[1].ticket))
        end
      end
      local lock = assert(mutex:try_acquire { ticket = "t" })
      local heir = assert(mutex:try_acquire { ticket = "t" })
      begin()
      fails("lost", lock:guard(work))
      assert.is_true(heir:guard(work))
      work:rollback()
    end)

    it("needs an open transaction, and the table", function()
      local lock = assert(mutex:try_acquire())
      fails("refused", lock:guard(work))
      begin()
      assert.is_true(lock:guard(work))
      work:rollback()
      assert(plain "gone":setup())
      lock = assert(plain "gone":mutex("a", 1):try_acquire())
      assert(one:execute "DROP TABLE gone")
      fails("refused", lock:guard(work))
      work:close()
      fails("unreachable", lock:guard(work))
      work = store.connect()
    end)

    it("may be over the connection of the locks themselves, which have to wait for the end", function()
      locks = dblocks.sql(work, { dialect = store.dialect })
      local lock = assert(locks:mutex("a", 1):try_acquire())
      begin()
      assert.is_true(lock:guard(work))
      fails("in_transaction", lock:release())
      work:commit()
      work:setautocommit(true)
      assert.is_true(lock:release())
    end)
  end)

  it("a connection that its owner has closed is unreachable", function()
    local connection = store.connect()
    locks = dblocks.sql(connection, { dialect = store.dialect })
    local lock = assert(locks:mutex("a", 1):try_acquire())
    connection:close()
    fails("unreachable", lock:verify())
    fails("unreachable", lock:release())
    fails.each("unreachable", locks)
  end)
end

-- Servers -------------------------------------------------------------------------------------------------------------

--- Specs of the ways to a server. `store`: besides, `way(port)`: connects by that port of 127.0.0.1; restart(): kills
-- the server as a crash does, and starts it again, with its data.
function sql.ways(store)
  local between, own

  before_each(function()
    between = cutter.start(store.port())
    own = dblocks.sql(store.connect, { dialect = store.dialect })
  end)

  after_each(function()
    process.clear()
    local one = store.connect()
    assert(one:execute "DELETE FROM mutexes")
    one:close()
  end)

  local function connect() return store.way(between.port) end

  -- Over a connection that has been asked for the time, so the next statement is that of a step.
  local function plain()
    local locks = dblocks.sql(connect(), { dialect = store.dialect })
    assert(locks:list())
    return locks
  end

  for what, words in pairs{ answer = "after a statement", question = "before a statement" } do
    describe("a connection that ends " .. words, function()
      it("leaves an acquire in doubt, under a ticket; the same ticket takes it", function()
        local locks = plain()
        between:cut(what, 1)
        local message = fails("in_doubt", locks:mutex("a", 1):try_acquire())
        local ticket = message:match "under the ticket (%S+):"
        fails("unreachable", locks:mutex("a", 1):try_acquire())
        fails("unreachable", locks:list())
        if what == "answer" then
          fails("busy", own:mutex("a", 1):try_acquire())
        else
          assert(own:mutex("a", 1):try_acquire()):release()
        end
        assert(own:mutex("a", 1):try_acquire { ticket = ticket }):release()
        assert.same({}, own:list())
      end)

      it("leaves a release in doubt, and makes a question unreachable", function()
        local locks, second = plain(), plain()
        local lock = assert(locks:mutex("a", 1):try_acquire())
        between:cut(what, 1)
        fails("unreachable", second:rwlock("a", 1):try_read())
        between:cut(what, 1)
        fails("in_doubt", lock:release())
        assert.equal(what == "answer" and 0 or 1, #own:list())
        fails("unreachable", lock:release())
      end)

      it("does not matter with a function for connections", function()
        local locks = dblocks.sql(connect, { dialect = store.dialect })
        for nth = 1, 3 do
          between:cut(what, nth)
          local lock = assert(locks:mutex("a", 1):acquire { timeout = 30 })
          between:cut(what, nth)
          local released, _, code = lock:release()
          assert.is_true(released or code == "in_doubt")
          between:cut(what, nth)
          lock = assert(locks:rwlock("a", 1):read { timeout = 30 })
          between:cut(what, nth)
          assert.is_true(lock:verify())
          between:cut(what, nth)
          released, _, code = lock:release()
          assert.is_true(released or code == "in_doubt")
          assert.same({}, own:list())
        end
      end)
    end)
  end

  it("a server that is killed and started again: a function for connections goes on, a connection does not", function()
    local locks, poor = dblocks.sql(store.connect, { dialect = store.dialect }), plain()
    local lock, other = assert(locks:mutex("a", 1):try_acquire()), assert(poor:mutex("b", 1):try_acquire())
    local waiter = process.start()
    waiter:run("locks = (loadstring or load)(...)()", store.locks())
    waiter:begin "return assert(locks:mutex('a', 1):acquire { poll = 0.05 }).ticket"
    store.restart()
    assert.is_true(lock:verify())
    fails("unreachable", other:verify())
    fails("unreachable", poor:mutex("c", 1):try_acquire())
    assert.is_false(waiter:finished())
    assert.is_true(lock:release())
    local ticket = waiter:finish(60)
    local list = own:list()
    assert.same({ other.ticket, ticket }, { list[1].ticket, list[2].ticket })
  end)

end

--- The permissions of the users "reader", which may SELECT, and "stranger", which may not. as(user) and owner() return
-- locks objects.
function sql.permissions(as, owner)
  it("to read only: each change is refused", function()
    local reader = as "reader"
    fails("refused", reader:mutex("a", 1):try_acquire())
    fails("refused", reader:rwlock("a", 1):try_read())
    local lock = assert(owner():mutex("a", 1):try_acquire())
    fails("refused", reader:break_lock("a", 1, lock.ticket))
    fails("busy", reader:rwlock("a", 1):try_read())
    assert.equal(lock.ticket, reader:list()[1].ticket)
    assert.is_true(reader:setup() and lock:release())
  end)

  it("that are none: everything is refused", function()
    fails.each("refused", as "stranger")
    fails("refused", as("stranger"):setup())
  end)
end

--- See the head of this file.
function sql.scene(words, store, scene)
  local running, data

  busted.setup(function()
    data = process.directory()
    running = assert(store.start { data = data })
  end)

  busted.teardown(function()
    running:stop()
    process.shell("rm", "-rf", data)
  end)

  function scene.server() return running end

  function scene.connect() return assert(store.connect(running)) end

  function scene.options(opts)
    opts = opts or {}
    opts.dialect = scene.dialect
    return opts
  end

  function scene.code() return store.connection(running) end

  function scene.locks() return store.code(running) end

  function scene.port() return running.address end

  function scene.way(port) return store.connect { address = port } end

  function scene.restart()
    running:kill()
    running = assert(store.start({ data = data, port = running.address }, true))
  end

  describe(("db-locks in %s:"):format(words), function()
    conformance {
      connect = function(opts) return dblocks.sql(scene.connect, scene.options(opts)) end,
      code = scene.locks,
    }
  end)

  describe(("bad days of %s:"):format(words), function() sql.days(scene) end)

  describe(("the way to %s:"):format(words), function()
    sql.ways(scene)
    late {
      port = scene.port,
      connect = function(port, is_plain)
        local function connect() return scene.way(port) end
        return dblocks.sql(is_plain and connect() or connect, scene.options())
      end,
    }
  end)

  return scene
end

return sql
