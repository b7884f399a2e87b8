-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- db-locks in a real Redis.
local conformance = require "spec.dblocks.support.conformance"
local dblocks = require "dblocks"
local fails = require "spec.dblocks.support.fails"
local late = require "spec.dblocks.support.late"
local process = require "spec.support.process"
local redis = require "spec.support.servers.redis"
local until_true = require "spec.support.until"
local store = require "spec.dblocks.support.stores.redis"

local server

setup(function() server = assert(store.start()) end)
teardown(function() server:stop() end)

local function client() return redis.connect(server.address) end

local function as_user_without(command)
  process.shell("redis-cli", "-p", tostring(server.address), "ACL", "SETUSER", "no-" .. command, "on", ">pw", "~*",
    "+@all", "-" .. command)
  return dblocks.redis(function()
    local one = client()
    one:auth("no-" .. command, "pw")
    return one
  end)
end

conformance {
  connect = function(opts) return dblocks.redis(client, opts) end,
  code = function() return store.code(server) end,
}

late {
  port = function() return server.address end,
  connect = function(port, is_plain)
    local function connect() return redis.connect(port) end
    return dblocks.redis(is_plain and connect() or connect)
  end,
}

-- A client whose steps are executed, and whose replies are then lost.
local function lossy(how)
  local one = client()
  local lossy_one = {}
  function lossy_one.eval(_, ...)
    if select("#", ...) <= 3 then return one:eval(...) end -- the question for the time
    if how == "before" then error("connection error: closed", 0) end
    local reply = one:eval(...)
    if how == "late" then return { "the mark of another", reply[2], reply[3] } end
    error("connection error: timeout", 0)
  end
  return lossy_one
end

describe("a reply that is lost", function()
  for how, words in pairs{ after = "after the step", before = "before the step", late = "and an old one comes" } do
    it(("%s: the acquire is in doubt, under a ticket; the same ticket takes it"):format(words), function()
      local locks = dblocks.redis(lossy(how))
      local _, message, code = locks:mutex("lossy", how):try_acquire()
      assert.equal("in_doubt", code)
      local ticket = message:match "under the ticket (%S+):"
      fails("unreachable", locks:mutex("lossy", how):try_acquire())
      local others = dblocks.redis(client)
      if how == "before" then
        assert(others:mutex("lossy", how):try_acquire()):release()
      else
        fails("busy", others:mutex("lossy", how):try_acquire())
      end
      assert(others:mutex("lossy", how):try_acquire { ticket = ticket }):release()
    end)
  end
end)

describe("Redis", function()
  it("that has gone away is unreachable, or in doubt in the middle of a step", function()
    local own = assert(redis.start("--save", ""))
    local locks = dblocks.redis(function() return redis.connect(own.address) end)
    local plain = dblocks.redis(redis.connect(own.address))
    assert(locks:mutex("gone", 1):try_acquire())
    own:stop()
    fails("in_doubt", locks:mutex("gone", 2):try_acquire())
    fails.each("unreachable", locks)
    fails("unreachable", plain:mutex("gone", 2):try_acquire()) -- it has asked for the time, and nothing else
    fails("unreachable", plain:list())
  end)

  it("keeps the note's own key", function()
    local raw, locks = client(), dblocks.redis(client)
    local lock = assert(locks:mutex("foobar", 123):try_acquire())
    assert.is_truthy(raw:get "mutexes/foobar,123":find("^" .. lock.ticket:gsub("%p", "%%%0") .. ",%d+$"))
    assert.is_true(lock:release())
    local reader = assert(locks:rwlock("foobar", 123):try_read())
    assert.is_truthy(raw:get "mutexes/foobar,123":find "^readers,%d+$")
    assert.is_true(reader:release())
    assert.is_false(raw:exists "mutexes/foobar,123" or raw:exists "{mutexes/foobar,123}.doorman")
    raw:set("mutexes/foobar,123", "gluww,1729837899653")
    fails("busy", locks:mutex("foobar", 123):try_acquire())
    assert.same({ "gluww", 1729837899.653 }, { locks:list { type = "foobar" }[1].ticket,
      locks:list { type = "foobar" }[1].acquired_at })
    assert.is_true(locks:break_lock("foobar", 123, "gluww"))
  end)

  it("with data of others under these keys is refused, and keeps them", function()
    local raw, locks = client(), dblocks.redis(client)
    raw:set("mutexes/other,1", "hello")
    raw:rpush("mutexes/other,2", "hello")
    raw:set("{mutexes/other,3}.doorman", "hello")
    for i = 1, 3 do
      fails("refused", locks:mutex("other", i):try_acquire())
      fails("refused", locks:rwlock("other", i):try_read())
    end
    assert.equal("hello", raw:get "mutexes/other,1")
    local logged = {}
    local lock = assert(locks:mutex("ours", 1):try_acquire())
    local function log(level, message) table.insert(logged, level .. " " .. message) end
    local list = assert(dblocks.redis(client, { log = log }):list())
    assert.same({ lock.ticket, 1, 2 }, { list[1].ticket, #list, #logged })
    assert.is_truthy(table.concat(logged):find("of mutexes/other,2", 1, true), logged[1])
    assert(lock:release())
    raw:del("mutexes/other,1", "mutexes/other,2", "{mutexes/other,3}.doorman")
  end)

  it("with readers whom only others know, or whose list is lost, is refused, and lists them", function()
    local raw, locks = client(), dblocks.redis(client)
    local function is_refused()
      fails("refused", locks:mutex("crowd", 1):try_acquire())
      fails("refused", locks:rwlock("crowd", 1):try_write())
      fails("refused", locks:rwlock("crowd", 1):read { timeout = 60 })
      local list = assert(locks:list { type = "crowd" })
      assert.same({ "read", "readers", 1 }, { list[1].kind, list[1].ticket, #list })
    end
    raw:set("mutexes/crowd,1", "readers,1729837899653")
    is_refused()
    assert.equal("readers,1729837899653", raw:get "mutexes/crowd,1")
    raw:del "mutexes/crowd,1"
    local reader = assert(locks:rwlock("crowd", 1):try_read())
    raw:del "{mutexes/crowd,1}.doorman"
    is_refused()
    fails("lost", reader:verify())
    fails("lost", reader:release())
    is_refused()
    raw:del "mutexes/crowd,1"
  end)

  it("that has too many clients is waited for", function()
    local raw = client()
    raw:config("SET", "maxclients", "1")
    local tries = 0
    local locks = dblocks.redis(client, { sleep = function()
      tries = tries + 1
      raw:config("SET", "maxclients", "10000")
    end })
    assert.is_true(assert(locks:mutex("crowd", 2):acquire { timeout = 60 }):release())
    assert.is_true(tries > 0)
  end)

  it("gets the text of a step once, and again where it has forgotten it, or lets nothing be called by name", function()
    local own = assert(redis.start("--save", ""))
    finally(function() own:stop() end)
    local raw = redis.connect(own.address)
    local locks = dblocks.redis(function() return redis.connect(own.address) end, { clock = function() return 0 end })
    local function calls(command)
      return tonumber((raw:info "commandstats".commandstats["cmdstat_" .. command] or "=0"):match "=(%d+)")
    end
    local function pair() assert.is_true(assert(locks:mutex("named", 1):try_acquire()):release()) end
    pair()
    local texts, named = calls "eval", calls "evalsha"
    for _ = 1, 10 do pair() end
    assert.equal(texts, calls "eval")
    assert.is_true(calls "evalsha" >= named + 20)
    raw:script "flush"
    pair()
    assert.equal(texts + 1, calls "eval")
    process.shell("redis-cli", "-p", tostring(own.address), "ACL", "SETUSER", "default", "-evalsha")
    pair()
    assert.equal(texts + 3, calls "eval")
  end)

  it("that may evict locks is unsafe", function()
    local raw, locks = client(), dblocks.redis(client)
    raw:config("SET", "maxmemory-policy", "allkeys-lru")
    fails("unsafe", locks:setup())
    raw:config("SET", "maxmemory-policy", "volatile-lru")
    assert.is_true(locks:setup())
    raw:config("SET", "maxmemory-policy", "noeviction")
  end)

  it("without memory, or without permission, refuses, and nothing is held", function()
    local raw, locks = client(), dblocks.redis(client)
    raw:config("SET", "maxmemory", "1")
    fails("refused", locks:mutex("full", 1):try_acquire())
    raw:config("SET", "maxmemory", "0")
    assert(locks:mutex("full", 1):try_acquire()):release()
    fails("refused", as_user_without("eval"):mutex("full", 1):try_acquire())
  end)
end)

it("examples/dblocks/operator.lua lists what is held, and breaks it by its ticket", function()
  local path = os.tmpname()
  process.write(path, store.code(server))
  finally(function() os.remove(path) end)
  local function operate(...)
    return pcall(process.shell, os.getenv "LUA" or "lua", "examples/dblocks/operator.lua", path, ...)
  end
  local lock = assert(dblocks.redis(client):mutex("import", "orders"):try_acquire())
  local fine, output = operate "list"
  assert.is_true(fine, output)
  assert.equal(1, (output:find("import\torders\twrite\t" .. lock.ticket .. "\t", 1, true)), output)
  assert.same({ true, "" }, { operate("list", "3600") })
  assert.is_false((operate("break", "import", "orders", "another.0000000000000000")))
  assert.is_true(lock:verify())
  assert.same({ true, "" }, { operate("break", "import", "orders", lock.ticket) })
  fails("lost", lock:verify())
  assert.is_false((operate "brake"))
end)

describe("a user of Redis without the command", function()
  local raw, locks

  before_each(function()
    raw, locks = client(), dblocks.redis(client)
    raw:flushall()
  end)

  after_each(function() raw:flushall() end)

  it("hgetall: a list is refused, and not empty", function()
    local lock = assert(locks:mutex("half", 1):try_acquire())
    fails("refused", as_user_without("hgetall"):list())
    assert.is_true(lock:release())
  end)

  for _, command in ipairs{ "del", "set", "hset", "hdel" } do
    it(command .. ": what is refused has changed nothing", function()
      local weak = as_user_without(command)
      for _, try in ipairs{ "try_write", "try_read" } do -- it acquires, or nothing is there
        local object = weak:rwlock("half", 1)
        local lock, _, code = object[try](object)
        assert.is_true(lock ~= nil or code == "refused")
        assert.equal(lock and 1 or 0, #locks:list())
        raw:flushall()
      end
      -- A lock that is there already, in the hands of the user who may not: it is ended, or held as before.
      for _, row in ipairs{ { "try_read", "release" }, { "try_write", "release" }, { "try_write", "downgrade" },
        { "try_read", "release", true } } do
        local object = locks:rwlock("half", 1)
        local lock = assert(object[row[1]](object))
        if row[3] then raw:hset("{mutexes/half,1}.doorman", " pending", ("waits,%d000"):format(os.time() + 1)) end
        lock._locks = weak
        local kind, done, _, code = lock.kind, lock[row[2]](lock)
        if not done then
          assert.equal("refused", code)
          assert.is_true(lock:verify())
          assert.equal(kind, locks:list()[1].kind)
        end
        raw:flushall()
      end
    end)
  end
end)

describe("more than one Redis", function()
  local function cli(port, ...) return process.shell("redis-cli", "-p", tostring(port), ...) end

  it("in a cluster has both keys of a resource in one slot; another node's answer is refused", function()
    local node = assert(redis.start("--save", "", "--cluster-enabled", "yes"))
    finally(function() node:stop() end)
    local locks = dblocks.redis(function() return redis.connect(node.address) end)
    fails("refused", locks:mutex("job", 1):try_acquire()) -- it has no slots: CLUSTERDOWN
    cli(node.address, "CLUSTER", "ADDSLOTSRANGE", "0", "16383")
    until_true(function() return cli(node.address, "CLUSTER", "INFO"):find "cluster_state:ok" end)
    for id = 1, 20 do
      local first, second = assert(locks:rwlock("job", id):try_read()), assert(locks:rwlock("job", id):try_read())
      assert.is_true(first:release() and second:release())
      local lock = assert(locks:rwlock("job", id):try_write())
      assert.is_true(lock:downgrade() and lock:release())
    end
  end)

  it("is asked for again when a master has become a replica, which keeps its connections", function()
    local old, new = assert(redis.start("--save", "")), assert(redis.start("--save", ""))
    finally(function()
      old:stop()
      new:stop()
    end)
    local now_at = old.address
    local locks = dblocks.redis(function() return redis.connect(now_at) end)
    local plain = dblocks.redis(redis.connect(now_at))
    assert(locks:mutex("job", 1):try_acquire()):release()
    cli(old.address, "REPLICAOF", "127.0.0.1", tostring(new.address))
    fails("refused", plain:mutex("job", 1):try_acquire())
    fails("unreachable", locks:mutex("job", 1):try_acquire())
    now_at = new.address
    assert.is_true(assert(locks:mutex("job", 1):acquire { timeout = 60 }):release())
    cli(old.address, "REPLICAOF", "NO", "ONE")
    assert.is_true(assert(plain:mutex("job", 1):try_acquire()):release())
  end)
end)

after_each(process.clear)
