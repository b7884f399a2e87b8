-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- What db-locks does on every database.
--
--     conformance {
--       connect = function(opts) return dblocks.x(...) end -- a new object, with a function for clients
--       code = function() return text end                  -- Lua for another process: returns such an object; its
--     }                                                    -- argument is a table of options
--
-- Called while busted loads a spec file. The database runs, with its table, when the specs run. Whatever is held when a
-- spec ends is broken.
local busted = require "busted"
local fails = require "spec.dblocks.support.fails"
local process = require "spec.support.process"
local until_true = require "spec.support.until"

local after_each, describe, it = busted.after_each, busted.describe, busted.it
local assert = require "luassert"

local serial = 0

-- A resource that no other spec uses.
local function fresh()
  serial = serial + 1
  return "spec", ("%d-%d"):format(process.id(), serial)
end

return function(store)
  local made = {}

  local function connect(opts)
    local locks = store.connect(opts)
    table.insert(made, locks)
    return locks
  end

  -- Another process, with `locks` and the functions below.
  local function start(opts)
    local other = process.start()
    local name = opts and opts.name or "other"
    other:run("locks = (loadstring or load)(...)({ name = select(2, ...) })", store.code(), name)
    other:run [[
      function take(kind, type, id, timeout, how)
        how = how or {}
        how.timeout = timeout
        local object = kind == "acquire" and locks:mutex(type, id) or locks:rwlock(type, id)
        local message, code
        lock, message, code = object[kind](object, how)
        if not lock then return nil, message, code end
        return lock.ticket
      end
    ]]
    return other
  end

  local function kinds(locks, type, id)
    local seen = {}
    for _, entry in ipairs(assert(locks:list())) do
      if entry.type == type and entry.id == id then table.insert(seen, entry.kind) end
    end
    table.sort(seen)
    return table.concat(seen, " ")
  end

  after_each(function()
    process.clear()
    local locks = store.connect()
    for _, entry in ipairs(assert(locks:list())) do locks:break_lock(entry.type, entry.id, entry.ticket) end
    assert.same({}, locks:list())
    locks:close()
    for _, each in ipairs(made) do each:close() end
    made = {}
  end)

  describe("a mutex", function()
    it("is held by one client at a time", function()
      local type, id = fresh()
      local mine, other = connect(), start()
      local lock = assert(mine:mutex(type, id):try_acquire())
      fails("busy", other:run("return take('acquire', ...)", type, id, 0))
      assert.is_true(lock:verify())
      assert.is_true(lock:release())
      assert.is_truthy(other:run("return take('acquire', ...)", type, id, 0))
      fails("busy", mine:mutex(type, id):try_acquire())
      fails("not_held", lock:release())
      fails("not_held", lock:verify())
    end)

    it("says what it is", function()
      local type, id = fresh()
      local locks = connect { name = "job@here:1" }
      local lock = assert(locks:mutex(type, id):acquire { timeout = 5 })
      assert.same({ "mutex", type, id, "job@here:1" }, { lock.kind, lock.type, lock.id, lock.name })
      assert.is_truthy(lock.ticket:find "^job@here:1%.%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x$", lock.ticket)
      assert.is_true(math.abs(lock.acquired_at - os.time()) < 60, tostring(lock.acquired_at))
      local entry = assert(locks:list { type = type })[1]
      assert.same({ type, id, "write", lock.ticket }, { entry.type, entry.id, entry.kind, entry.ticket })
      assert.is_true(math.abs(entry.acquired_at - lock.acquired_at) < 0.002)
      assert.is_true(entry.age >= 0 and entry.age < 60, tostring(entry.age))
      assert.is_truthy(tostring(lock):find(lock.ticket, 1, true))
    end)

    it("stays held when its holder is killed, until an operator breaks it", function()
      local type, id = fresh()
      local other = start { name = "dead" }
      local ticket = other:run("return take('acquire', ...)", type, id, 0)
      other:kill()
      local locks = connect()
      fails("busy", locks:mutex(type, id):try_acquire())
      fails("not_held", locks:break_lock(type, id, "dead.0123456789abcdef"))
      fails("busy", locks:mutex(type, id):try_acquire())
      assert.is_true(locks:break_lock(type, id, ticket))
      fails("not_held", locks:break_lock(type, id, ticket))
      assert(locks:mutex(type, id):try_acquire())
    end)

    it("is lost to a holder whose lock was broken", function()
      local type, id = fresh()
      local locks = connect()
      local lock = assert(locks:mutex(type, id):try_acquire())
      assert.is_true(connect():break_lock(type, id, lock.ticket))
      local next_one = assert(connect():mutex(type, id):try_acquire())
      fails("lost", lock:verify())
      fails("lost", lock:release())
      assert.is_true(next_one:verify())
    end)

    it("is taken over by the same ticket, as by a job that is started again", function()
      local type, id = fresh()
      local other = start()
      assert.equal("nightly", other:run([[
        local type, id = ...
        return take("acquire", type, id, 0, { ticket = "nightly" })
      ]], type, id))
      other:kill()
      local locks = connect()
      local lock = assert(locks:mutex(type, id):acquire { ticket = "nightly", timeout = 5 })
      assert.is_true(lock:verify())
      assert.is_true(lock:release())
      assert(connect():mutex(type, id):try_acquire())
    end)

    it("is waited for, until the timeout, and then until it is free", function()
      local type, id = fresh()
      local lock, other = assert(connect():mutex(type, id):try_acquire()), start()
      fails("timeout", connect():mutex(type, id):acquire { timeout = 0.2, poll = 0.05 })
      other:begin("return take('acquire', ...)", type, id, 60)
      assert.is_false(other:finished())
      assert.is_true(lock:release())
      assert.is_truthy(other:finish())
    end)

    it("is waited for with on_wait, which is told how long and for what", function()
      local type, id = fresh()
      local lock, told = assert(connect():mutex(type, id):try_acquire()), {}
      assert(connect():mutex(type, id):acquire { poll = 0.05, on_wait = function(seconds, reason)
        table.insert(told, { seconds, reason })
        if #told == 2 then assert.is_true(lock:release()) end
      end })
      assert.is_true(#told >= 2 and told[2][1] > told[1][1], #told .. " calls")
      assert.is_truthy(told[1][2]:find(id, 1, true))
    end)

    it("lets nobody in beside another, of four processes", function()
      local type, id = fresh()
      local path, all = os.tmpname(), {}
      for i = 1, 4 do all[i] = start() end
      for _, each in ipairs(all) do
        each:begin([[
          local type, id, path = ...
          local mutex = locks:mutex(type, id)
          for _ = 1, 20 do
            local lock = assert(mutex:acquire { timeout = 60, poll = 0.005 })
            local file = assert(io.open(path))
            local count = tonumber(file:read "*a") or 0
            file:close()
            file = assert(io.open(path, "w"))
            file:write(count + 1)
            file:close()
            assert(lock:release())
          end
          return true
        ]], type, id, path)
      end
      for _, each in ipairs(all) do assert.is_true(each:finish(60)) end
      assert.equal("80", process.contents(path))
      os.remove(path)
    end)
  end)

  describe("a readers–writer lock", function()
    it("has several readers or one writer", function()
      local type, id = fresh()
      local locks, other = connect(), start()
      local first = assert(locks:rwlock(type, id):try_read())
      assert.is_truthy(other:run("return take('read', ...)", type, id, 0))
      fails("busy", locks:rwlock(type, id):try_write())
      fails("busy", locks:mutex(type, id):try_acquire())
      assert.equal("read read", kinds(locks, type, id))
      assert.is_true(first:verify() and first:release())
      fails("lost", (function() first._is_released = false return first:verify() end)())
      fails("busy", locks:rwlock(type, id):try_write())
      assert.is_true(other:run "return lock:release()")
      local writer = assert(locks:rwlock(type, id):try_write())
      assert.same({ "write", "read" }, { writer.kind, first.kind })
      fails("busy", other:run("return take('read', ...)", type, id, 0))
      fails("busy", other:run("return take('acquire', ...)", type, id, 0))
      assert.is_true(writer:release())
    end)

    it("lets a writer that waits go before new readers, and these in when it waits no longer", function()
      local type, id = fresh()
      local locks, other = connect(), start()
      local reader = assert(locks:rwlock(type, id):try_read())
      other:begin("return take('write', ...)", type, id, 60, nil)
      until_true(function() return kinds(locks, type, id) == "read waiting" end)
      fails("busy", locks:rwlock(type, id):try_read())
      assert.is_true(reader:release())
      assert.is_truthy(other:finish())
      fails("busy", locks:rwlock(type, id):try_read())
      assert.is_true(other:run "return lock:release()")

      assert(locks:rwlock(type, id):try_read())
      fails("timeout", other:run("return take('write', ...)", type, id, 0.1))
      assert.equal("read", kinds(locks, type, id))
      assert(locks:rwlock(type, id):try_read())
    end)

    it("passes over a writer that died while it waited, after 10 seconds of silence", function()
      local type, id = fresh()
      local locks, other = connect(), start()
      local reader = assert(locks:rwlock(type, id):try_read())
      other:begin("return take('write', ...)", type, id, 60)
      until_true(function() return kinds(locks, type, id) == "read waiting" end)
      other:kill()
      fails("busy", locks:rwlock(type, id):try_read())
      local second = assert(locks:rwlock(type, id):read { timeout = 60, poll = 0.5 })
      assert.is_true(reader:release() and second:release())
      assert(locks:rwlock(type, id):try_write())
    end)

    it("turns a writer into a reader", function()
      local type, id = fresh()
      local locks, other = connect(), start()
      local lock = assert(locks:rwlock(type, id):try_write())
      local since = lock.acquired_at
      fails("busy", other:run("return take('read', ...)", type, id, 0))
      assert.is_true(lock:downgrade())
      assert.same({ "read", since }, { lock.kind, lock.acquired_at })
      assert.is_true(lock:downgrade())
      assert.is_truthy(other:run("return take('read', ...)", type, id, 0))
      fails("busy", locks:rwlock(type, id):try_write())
      assert.is_true(lock:verify() and lock:release())
      fails("not_held", lock:downgrade())
    end)

    it("has readers that are broken one by one, and writers that wait", function()
      local type, id = fresh()
      local locks, other = connect(), start()
      local first, second = assert(locks:rwlock(type, id):try_read()), assert(locks:rwlock(type, id):try_read())
      other:begin("return take('write', ...)", type, id, 60)
      until_true(function() return kinds(locks, type, id) == "read read waiting" end)
      other:signal "STOP" -- otherwise it would be there again after a poll
      for _, entry in ipairs(assert(locks:list { type = type })) do
        if entry.kind == "waiting" then assert.is_true(locks:break_lock(type, id, entry.ticket)) end
      end
      assert.equal("read read", kinds(locks, type, id))
      assert.is_true(locks:break_lock(type, id, first.ticket))
      fails("lost", first:verify())
      assert.is_true(second:verify() and second:release())
    end)
  end)

  describe("list", function()
    it("shows the oldest first, and of a type or an age only", function()
      local type, id = fresh()
      local locks = connect()
      local old = assert(locks:mutex(type, id):try_acquire())
      until_true(function() return locks:list { type = type }[1].age > 0.01 end)
      local young = assert(locks:mutex(type .. "-b", id):try_acquire())
      local tickets = {}
      for i, entry in ipairs(assert(locks:list())) do tickets[i] = entry.ticket end
      assert.same({ old.ticket, young.ticket }, tickets)
      local only = assert(locks:list { type = type .. "-b" })
      assert.same({ young.ticket, 1 }, { only[1].ticket, #only })
      local age = locks:list { type = type }[1].age
      assert.equal(old.ticket, locks:list { older_than = age }[1].ticket)
      assert.same({}, locks:list { older_than = 3600 })
    end)
  end)

  describe("names", function()
    it("may have 64 of their characters, and differ by case", function()
      local type = ("aA0_.:@+-"):rep(8):sub(1, 64)
      local locks = connect()
      local lock = assert(locks:mutex(type, type):acquire { timeout = 5, ticket = type })
      fails("busy", locks:mutex(type, type):try_acquire())
      assert(locks:mutex(type:upper(), type):try_acquire())
      assert(locks:mutex(type, type:lower()):try_acquire())
      fails("not_held", locks:break_lock(type, type, type:lower()))
      assert.is_true(lock:verify())
      assert.equal(type, locks:list { type = type }[1].type)
      assert.is_true(lock:release())
    end)
  end)

  describe("scopes", function()
    it("release at their end, also by an error", function()
      local type, id = fresh()
      local locks = connect()
      local mutex, rwlock, opts = locks:mutex(type, id), locks:rwlock(type, id), { timeout = 0 }
      assert.same({ true, 1, nil, 3 }, { mutex:with(function(lock, ...)
        assert.equal("mutex", lock.kind)
        return ...
      end, 1, nil, 3) })
      assert.is_true(rwlock:with_read(opts, function(lock) assert.equal("read", lock.kind) end))
      assert.same({ true, opts }, { rwlock:with_read({}, function(_, given) return given end, opts) })
      assert.is_true(mutex:with(function(_, one, more) assert(one == opts and more) end, opts, 1))
      assert.is_true(rwlock:with_write(function(lock)
        fails("busy", mutex:with({ timeout = 0 }, error))
        return lock:release()
      end))
      local fine, problem = pcall(mutex.with, mutex, function() error("oh", 0) end)
      assert.same({ false, "oh" }, { fine, problem })
      fails("lost", mutex:with(function(lock) locks:break_lock(type, id, lock.ticket) end))
      assert.equal("", kinds(locks, type, id))
    end)

    if not coroutine.close then return end

    it("release when the coroutine is closed in which their function yields", function()
      local type, id = fresh()
      local locks = connect()
      for _, with in ipairs{
        function(fn) return locks:mutex(type, id):with(fn) end,
        function(fn) return locks:rwlock(type, id):with_read({ timeout = 0 }, fn) end,
      } do
        local thread = coroutine.create(function() return with(coroutine.yield) end)
        assert(coroutine.resume(thread))
        assert.not_equal("", kinds(locks, type, id))
        assert(coroutine.close(thread))
        assert.equal("", kinds(locks, type, id))
      end
    end)
  end)

  describe("setup and close", function()
    it("may be called again", function()
      local locks = connect()
      assert.is_true(locks:setup())
      assert.is_true(locks:setup())
      assert.is_true(locks:close() and locks:close())
      fails("closed", locks:mutex(fresh()):try_acquire())
      fails("closed", locks:list())
    end)
  end)
end
