-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- db-locks in a real Cassandra: of one node, then of three, two of which are stopped.
local cassandra = require "spec.support.servers.cassandra"
local cassandra_client = require "spec.dblocks.support.cassandra_client"
local conformance = require "spec.dblocks.support.conformance"
local dblocks = require "dblocks"
local fails = require "spec.dblocks.support.fails"
local late = require "spec.dblocks.support.late"
local process = require "spec.support.process"
local store = require "spec.dblocks.support.stores.cassandra"
local until_true = require "spec.support.until"

if os.getenv "CASSANDRA" == "0" then
  pending "db-locks in Cassandra: CASSANDRA=0"
  return
end

local TABLE = store.TABLE

local function connecting(port)
  return function() return cassandra_client.connect(port) end
end

local function with_table(name) return { table = name } end

describe("Cassandra, one node:", function()
  local cluster, port, raw

  setup(function()
    cluster = assert(store.start())
    port, raw = cluster.address, cluster.raw
  end)
  teardown(function() cluster:stop() end)

  local function connect(opts)
    opts = opts or {}
    opts.table = TABLE
    return dblocks.cassandra(connecting(port), opts)
  end

  conformance { connect = connect, code = function() return store.code(cluster) end }

  late {
    port = function() return port end, has_no_clock = true,
    connect = function(by, is_plain)
      return dblocks.cassandra(is_plain and cassandra_client.connect(by) or connecting(by), with_table(TABLE))
    end,
  }

  -- A client whose statements are counted, and changed by `around(execute, cql, opts)`.
  local function watched(around)
    local one = cassandra_client.connect(port)
    local client = { statements = one.statements }
    function client:execute(cql, args, opts) -- luacheck: no self
      local function execute() return one:execute(cql, args, opts) end
      if around then return around(execute, cql, opts) end
      return execute()
    end
    return client
  end

  describe("the statements", function()
    it("of each operation are few", function()
      local one = watched()
      local locks, last, all = dblocks.cassandra(one, with_table(TABLE)), 0, {}
      local mutex, rwlock = locks:mutex("count", 1), locks:rwlock("count", 1)
      -- Notes the statements of a call; returns what it does.
      local function counted(result)
        local words = {}
        for i = last + 1, #one.statements do
          local cql = one.statements[i]
          table.insert(words, cql:match "^%u+" .. (cql:find "system%.local" and " clock" or ""))
          assert.is_falsy(cql:find "TTL" and not cql:find "ticket = null" or cql:find "TIMESTAMP", cql)
          if not cql:find "^SELECT" then assert.is_truthy(cql:find " IF ", cql) end
        end
        last = #one.statements
        table.insert(all, table.concat(words, ", "))
        return result
      end
      local lock = counted(assert(mutex:try_acquire()))
      counted(mutex:try_acquire())
      counted(lock:verify())
      counted(assert(lock:release()))
      local reader, second = counted(assert(rwlock:try_read())), counted(assert(rwlock:try_read()))
      counted(assert(second:release()))
      counted(assert(reader:release()))
      local writer = assert(rwlock:try_write())
      last = #one.statements
      counted(assert(writer:downgrade()))
      assert.is_true(writer:release())
      local both = "SELECT, UPDATE"
      assert.same({ "SELECT clock, SELECT, UPDATE", -- the clock once in 5 seconds
        "SELECT", "SELECT", "UPDATE", both, both, both, both, both }, all)
    end)

    it("are at QUORUM and SERIAL, and those that only look at SERIAL", function()
      local seen = {}
      local locks = dblocks.cassandra(watched(function(execute, cql, opts)
        local verb = cql:match "^%u+" .. (cql:find "system" and " system" or "")
        seen[verb] = ("%d %s"):format(opts.consistency, opts.serial_consistency or "-")
        return execute()
      end), with_table(TABLE))
      local rwlock = locks:rwlock("level", 1)
      local first, second = assert(rwlock:try_read()), assert(rwlock:try_read())
      assert.is_true(first:release() and second:release())
      assert.same({ ["SELECT system"] = "1 -", SELECT = "8 -", UPDATE = "4 8" }, seen)
    end)

    it("may be repeated by the client itself", function()
      local locks = dblocks.cassandra(watched(function(execute, cql)
        if cql:find "^UPDATE" then execute() end
        return execute()
      end), with_table(TABLE))
      local first, writer = assert(locks:rwlock("twice", 1):try_read()), assert(locks:rwlock("twice", 2):try_write())
      assert(locks:rwlock("twice", 1):try_read())
      assert.is_true(first:release() and writer:downgrade() and writer:release())
    end)
  end)

  describe("another who comes between the look and the change", function()
    -- Locks whose first change lets another go first.
    local function interrupted(fn)
      local done = false
      return dblocks.cassandra(watched(function(execute, cql)
        if not done and cql:find "^UPDATE" then
          done = true
          fn()
        end
        return execute()
      end), with_table(TABLE))
    end

    local function readers_of(id)
      local count = 0
      for _, entry in ipairs(assert(connect():list { type = "between" })) do
        if entry.id == id and entry.kind == "read" then count = count + 1 end
      end
      return count
    end

    it("is not overwritten by a reader that enters, as the first or beside others", function()
      local rwlock, second = connect():rwlock("between", "enter"), nil
      assert(rwlock:try_read())
      local locks = interrupted(function() second = assert(rwlock:try_read()) end)
      assert(locks:rwlock("between", "enter"):try_read())
      assert.equal(3, readers_of "enter")
      assert.is_true(second:verify())
      local mutex, writer = connect():mutex("between", "first"), nil
      locks = interrupted(function() writer = assert(mutex:try_acquire()) end)
      fails("busy", locks:rwlock("between", "first"):try_read())
      assert.is_true(writer:verify())
    end)

    it("stays when a reader leaves, as the last one or beside others", function()
      local rwlock, second = connect():rwlock("between", "leave"), nil
      local first = assert(rwlock:try_read())
      first._locks = interrupted(function() second = assert(rwlock:try_read()) end)
      assert.is_true(first:release() and second:verify())
      local third = assert(rwlock:try_read())
      local locks = interrupted(function() assert(rwlock:try_read()) end)
      assert.is_true(locks:break_lock("between", "leave", third.ticket))
      assert.equal(2, readers_of "leave")
    end)
  end)

  it("the time is that of Cassandra, whatever the clock of the client says", function()
    local lock = assert(connect { clock = function() return 5 end }:mutex("clock", 1):try_acquire())
    assert.is_true(math.abs(lock.acquired_at - os.time()) < 60, tostring(lock.acquired_at))
    local rows = assert(raw:execute(("SELECT acquired_at FROM %s"):format(TABLE)))
    local stored
    for _, row in ipairs(rows) do stored = stored or row.acquired_at end -- rows without a ticket have none
    assert.equal(lock.acquired_at, stored / 1000)
    local locks = dblocks.cassandra(watched(function(execute)
      local found = execute()
      for _, row in ipairs(found or {}) do row.now = row.now and "2026-01-01" end
      return found
    end), with_table(TABLE))
    fails("refused", locks:mutex("clock", 2):try_acquire())
  end)

  it("a list has all pages", function()
    local locks = connect()
    for i = 1, 7 do assert(locks:mutex("page", i):try_acquire()) end
    local pages = 0
    local few = watched(function(execute, _, opts)
      opts.page_size, pages = 2, pages + 1
      return execute()
    end)
    assert.equal(7, #assert(dblocks.cassandra(few, with_table(TABLE)):list { type = "page" }))
    assert.is_true(pages >= 4, pages .. " pages")
  end)

  it("a table or a keyspace that is missing, or of others, is refused", function()
    assert(raw:execute "CREATE TABLE locks.others (id text PRIMARY KEY, ticket text)")
    for _, name in ipairs { "locks.none", "nowhere.mutexes", "locks.others" } do
      local locks = dblocks.cassandra(connecting(port), with_table(name))
      fails("refused", locks:mutex("a", 1):try_acquire())
      fails("refused", locks:list())
      if name ~= "locks.none" then fails("refused", locks:setup()) end
    end
  end)

  it("rows of others are refused, and stay", function()
    local put = "INSERT INTO " .. TABLE .. " (resource_type, resource_id, %s) VALUES ('foreign', '%d', %s) "
      .. "IF NOT EXISTS"
    local rows = {
      { "ticket", "'me'" },
      { "ticket, acquired_at", "'it''s me', 1700000000000" },
      { "ticket, acquired_at, active_readers", "'readers', 1700000000000, {'x': 1}" },
      { "ticket, acquired_at, revision, active_readers", "'readers', 1700000000000, 'r', {'it''s me': 1}" },
      { "ticket, acquired_at, revision, pending_writer", "'readers', 1700000000000, 'r', 'me'" },
    }
    local locks = connect()
    for i, row in ipairs(rows) do
      assert(raw:execute(put:format(row[1], i, row[2])))
      fails("refused", locks:rwlock("foreign", i):try_read())
      fails("refused", locks:rwlock("foreign", i):try_write())
      fails("refused", locks:break_lock("foreign", i, "you"))
      assert.is_truthy(fails("refused", locks:list()):find("foreign " .. i, 1, true))
      assert(raw:execute(
        ("DELETE FROM %s WHERE resource_type = 'foreign' AND resource_id = '%d' IF EXISTS"):format(TABLE, i)))
    end
  end)

  it("a table or a keyspace that forgets is unsafe", function()
    local locks = connect()
    assert(raw:execute("ALTER TABLE " .. TABLE .. " WITH default_time_to_live = 60"))
    fails("unsafe", locks:setup())
    assert(raw:execute("ALTER TABLE " .. TABLE .. " WITH default_time_to_live = 0"))
    assert.is_true(locks:setup())
    assert(raw:execute "ALTER KEYSPACE locks WITH durable_writes = false")
    fails("unsafe", locks:setup())
    assert(raw:execute "ALTER KEYSPACE locks WITH durable_writes = true")
    assert.is_true(locks:setup())
  end)

  it("a node that is killed is unreachable; its locks stay held, and a waiting acquire goes on after a restart",
    function()
      local lock = assert(connect():mutex("killed", 1):try_acquire())
      local held = assert(connect():mutex("killed", 2):try_acquire())
      cluster:kill(1)
      fails("unreachable", connect():mutex("killed", 3):try_acquire())
      fails("unreachable", connect():mutex("killed", 3):acquire { timeout = 0.5 })
      fails("unreachable", connect():list())
      fails("unreachable", connect():break_lock("killed", 1, lock.ticket))
      local other = process.start()
      other:run("locks = (loadstring or load)(...)()", store.code(cluster))
      other:begin "return assert(locks:mutex('killed', 3):acquire { timeout = 100, poll = 0.2 }).ticket"
      cluster:restart(1)
      assert.is_truthy(other:finish(120))
      until_true(function() return held:verify() end)
      fails("busy", connect():mutex("killed", 2):try_acquire())
      assert.is_true(held:release())
      assert.is_true(lock:release())
    end)
end)

describe("Cassandra, three nodes:", function()
  local cluster, ports, raw

  setup(function()
    cluster = assert(cassandra.start(3))
    ports = { cluster:bridge(1), cluster:bridge(2) }
    cluster.address = ports[1]
    raw = cassandra_client.connect(ports[1])
    until_true(function() return #assert(raw:execute "SELECT peer FROM system.peers") == 2 end)
    store.make(ports[1], 3)
  end)
  teardown(function() if cluster then cluster:stop() end end)

  local function both(signal)
    for number = 2, 3 do cluster:signal(number, signal) end
  end

  after_each(function()
    for number = 1, 3 do cluster:signal(number, "CONT") end
    process.clear()
    local locks = dblocks.cassandra(connecting(ports[2]), with_table(TABLE))
    until_true(function()
      for _, entry in ipairs(locks:list() or {}) do locks:break_lock(entry.type, entry.id, entry.ticket) end
      local left = locks:list()
      return left and #left == 0
    end)
  end)

  local function locks_by(number, opts)
    opts = opts or {}
    opts.table = TABLE
    return dblocks.cassandra(connecting(ports[number]), opts)
  end

  -- Whatever became of the steps in doubt: this ticket takes the lock, and no other is there.
  local function adopt(id, ticket)
    local lock
    until_true(function()
      local message
      lock, message = locks_by(2):mutex("doubt", id):acquire { ticket = ticket, timeout = 10, poll = 0.1 }
      return lock, message
    end)
    local entries = assert(locks_by(2):list { type = "doubt" })
    assert.same({ 1, ticket }, { #entries, entries[1].ticket })
    fails("busy", locks_by(1):mutex("doubt", id):try_acquire())
    assert.is_true(lock:verify())
    assert.is_true(lock:release())
  end

  it("with two of them stopped a plain client is unreachable, and not given up", function()
    local plain = dblocks.cassandra(cassandra_client.connect(ports[1]), with_table(TABLE))
    both "STOP"
    fails("unreachable", plain:mutex("doubt", 1):try_acquire()) -- it has looked first
    fails("unreachable", plain:rwlock("doubt", 1):try_read())
    both "CONT"
    adopt(1, "mine")
    until_true(function() return plain:list() end)
  end)

  it("stopped in the middle of steps: whatever the outcome, there is one holder", function()
    local other = process.start()
    other:run("locks = (loadstring or load)(...)()", store.code(cluster))
    for round = 1, 4 do
      other:begin([[
        local round = ...
        local mutex = locks:mutex("doubt", "race")
        local lock, message = mutex:acquire { timeout = 1.5, poll = 0.1, ticket = "race-" .. round }
        return lock and lock.ticket, message
      ]], round)
      both "STOP"
      local ticket, message = other:finish(60)
      assert.is_true(ticket ~= nil or message:find "^in_doubt" ~= nil or message:find "^unreachable" ~= nil, message)
      both "CONT"
      adopt("race", "race-" .. round)
    end
  end)
end)

after_each(process.clear)
