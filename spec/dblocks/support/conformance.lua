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

local after_each, before_each, describe, it = busted.after_each, busted.before_each, busted.describe, busted.it
local assert = require "luassert"

local serial = 0

return function(store)
  local made = {}
  local locks, type, id -- of a resource that no other spec uses

  local function connect(opts)
    table.insert(made, store.connect(opts))
    return made[#made]
  end

  -- Another process, with `locks` and a function.
  local function start()
    local other = process.start()
    other:run("locks = (loadstring or load)(...)({ name = 'other' })", store.code())
    other:run [[
      function take(kind, type, id, timeout, ticket)
        local object = kind == "acquire" and locks:mutex(type, id) or locks:rwlock(type, id)
        local message, code
        lock, message, code = object[kind](object, { timeout = timeout, ticket = ticket })
        if not lock then return nil, message, code end
        return lock.ticket
      end
    ]]
    return other
  end

  local function kinds() -- of what there is
    local seen = {}
    for _, entry in ipairs(assert(locks:list())) do
      if entry.type == type and entry.id == id then table.insert(seen, entry.kind) end
    end
    table.sort(seen)
    return table.concat(seen, " ")
  end

  before_each(function()
    serial = serial + 1
    locks, type, id = connect(), "spec", ("%d-%d"):format(process.id(), serial)
  end)

  after_each(function()
    process.clear()
    locks = store.connect()
    for _, entry in ipairs(assert(locks:list())) do locks:break_lock(entry.type, entry.id, entry.ticket) end
    assert.same({}, locks:list())
    locks:close()
    for _, each in ipairs(made) do each:close() end
    made = {}
  end)

  it("a mutex is held by one client at a time", function()
    local other = start()
    local lock = assert(locks:mutex(type, id):try_acquire())
    fails("busy", other:run("return take('acquire', ...)", type, id, 0))
    assert.is_true(lock:verify() and lock:release())
    assert.is_truthy(other:run("return take('acquire', ...)", type, id, 0))
    fails("busy", locks:mutex(type, id):try_acquire())
    fails("not_held", lock:release())
    fails("not_held", lock:verify())
  end)

  it("a mutex says what it is", function()
    locks = connect { name = "job@here:1" }
    local lock = assert(locks:mutex(type, id):acquire { timeout = 5 })
    assert.same({ "mutex", type, id, "job@here:1" }, { lock.kind, lock.type, lock.id, lock.name })
    assert.is_truthy(lock.ticket:find "^job@here:1%.%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x$", lock.ticket)
    assert.is_true(math.abs(lock.acquired_at - os.time()) < 60, tostring(lock.acquired_at))
    local entry = assert(locks:list { type = type })[1]
    assert.same({ type, id, "write", lock.ticket }, { entry.type, entry.id, entry.kind, entry.ticket })
    assert.is_true(math.abs(entry.acquired_at - lock.acquired_at) < 0.002)
    assert.is_true(entry.age >= 0 and entry.age < 60, tostring(entry.age))
  end)

  it("a mutex stays held when its holder is killed, until it is broken, and so lost to a holder", function()
    local other = start()
    local ticket = other:run("return take('acquire', ...)", type, id, 0)
    other:kill()
    fails("busy", locks:mutex(type, id):try_acquire())
    fails("not_held", locks:break_lock(type, id, "other.0123456789abcdef"))
    fails("busy", locks:mutex(type, id):try_acquire())
    assert.is_true(locks:break_lock(type, id, ticket))
    fails("not_held", locks:break_lock(type, id, ticket))
    local lock = assert(locks:mutex(type, id):try_acquire())
    assert.is_true(connect():break_lock(type, id, lock.ticket))
    local next_one = assert(connect():mutex(type, id):try_acquire())
    fails("lost", lock:verify())
    fails("lost", lock:release())
    assert.is_true(next_one:verify())
  end)

  it("a mutex is taken over by the same ticket, as by a job that is started again", function()
    local other = start()
    assert.equal("nightly", other:run("return take('acquire', ...)", type, id, 0, "nightly"))
    other:kill()
    local lock = assert(connect():mutex(type, id):acquire { ticket = "nightly", timeout = 5 })
    assert.is_true(lock:verify() and lock:release())
    assert(connect():mutex(type, id):try_acquire())
  end)

  it("a mutex is waited for, until the timeout or until it is free; on_wait is told how long and for what", function()
    local lock, told = assert(connect():mutex(type, id):try_acquire()), {}
    fails("timeout", connect():mutex(type, id):acquire { timeout = 0.2, poll = 0.05 })
    assert(connect():mutex(type, id):acquire { poll = 0.05, on_wait = function(seconds, reason)
      table.insert(told, { seconds, reason })
      if #told == 2 then assert.is_true(lock:release()) end
    end })
    assert.is_true(#told >= 2 and told[2][1] > told[1][1], #told .. " calls")
    assert.is_truthy(told[1][2]:find(id, 1, true))
  end)

  it("lets nobody in beside a writer, of four processes", function()
    local path, all, sum = os.tmpname(), {}, 0
    for i = 1, 4 do all[i] = start() end
    for i, each in ipairs(all) do
      each:begin([[
        local type, id, path, first = ...
        local mutex, rwlock, written = locks:mutex(type, id), locks:rwlock(type, id), 0
        local function read()
          local file = assert(io.open(path))
          local count = tonumber(file:read "*a") or 0
          file:close()
          return count
        end
        for round = first, first + 20 do
          local how = { timeout = 60, poll = 0.005 }
          local lock = assert(round % 3 == 0 and rwlock:read(how) or round % 3 == 1 and rwlock:write(how)
            or mutex:acquire(how))
          local count = read()
          if lock.kind == "read" then
            assert(read() == count, "a writer was beside a reader")
          else
            local file = assert(io.open(path, "w"))
            file:write(count + 1)
            file:close()
            written = written + 1
          end
          assert(lock:release())
        end
        return written
      ]], type, id, path, i)
    end
    for _, each in ipairs(all) do sum = sum + each:finish(60) end
    assert.equal(sum, tonumber(process.contents(path)))
    os.remove(path)
  end)

  describe("a readers–writer lock", function()
    it("has several readers or one writer", function()
      local other = start()
      local first = assert(locks:rwlock(type, id):try_read())
      assert.is_truthy(other:run("return take('read', ...)", type, id, 0))
      fails("busy", locks:rwlock(type, id):try_write())
      fails("busy", locks:mutex(type, id):try_acquire())
      assert.equal("read read", kinds())
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
      local other = start()
      local reader = assert(locks:rwlock(type, id):try_read())
      other:begin("return take('write', ...)", type, id, 60)
      until_true(function() return kinds() == "read waiting" end)
      fails("busy", locks:rwlock(type, id):try_read())
      assert.is_true(reader:release())
      assert.is_truthy(other:finish())
      fails("busy", locks:rwlock(type, id):try_read())
      assert.is_true(other:run "return lock:release()")

      assert(locks:rwlock(type, id):try_read())
      fails("timeout", other:run("return take('write', ...)", type, id, 0.1))
      assert.equal("read", kinds())
      assert(locks:rwlock(type, id):try_read())
    end)

    it("passes over a writer that died while it waited, after 10 seconds of silence", function()
      local other = start()
      local reader = assert(locks:rwlock(type, id):try_read())
      other:begin("return take('write', ...)", type, id, 60)
      until_true(function() return kinds() == "read waiting" end)
      other:kill()
      fails("busy", locks:rwlock(type, id):try_read())
      local second = assert(locks:rwlock(type, id):read { timeout = 60, poll = 0.5 })
      assert.is_true(reader:release() and second:release())
      assert(locks:rwlock(type, id):try_write())
    end)

    it("turns a writer into a reader", function()
      local other = start()
      local lock = assert(locks:rwlock(type, id):try_write())
      local since = lock.acquired_at
      assert.is_true(lock:downgrade())
      assert.same({ "read", since }, { lock.kind, lock.acquired_at })
      assert.is_true(lock:downgrade())
      assert.is_truthy(other:run("return take('read', ...)", type, id, 0))
      fails("busy", locks:rwlock(type, id):try_write())
      assert.is_true(lock:verify() and lock:release())
      fails("not_held", lock:downgrade())
    end)

    it("has readers that are broken one by one, and writers that wait", function()
      local other = start()
      local first, second = assert(locks:rwlock(type, id):try_read()), assert(locks:rwlock(type, id):try_read())
      other:begin("return take('write', ...)", type, id, 60)
      until_true(function() return kinds() == "read read waiting" end)
      other:signal "STOP" -- otherwise it would be there again after a poll
      for _, entry in ipairs(assert(locks:list { type = type })) do
        if entry.kind == "waiting" then assert.is_true(locks:break_lock(type, id, entry.ticket)) end
      end
      assert.equal("read read", kinds())
      assert.is_true(locks:break_lock(type, id, first.ticket))
      fails("lost", first:verify())
      assert.is_true(second:verify() and second:release())
    end)
  end)

  it("a list shows the oldest first, and of a type or an age only", function()
    local old = assert(locks:mutex(type, id):try_acquire())
    until_true(function() return locks:list { type = type }[1].age > 0.01 end)
    local young = assert(locks:mutex(type .. "-b", id):try_acquire())
    local all = assert(locks:list())
    assert.same({ old.ticket, young.ticket, 2 }, { all[1].ticket, all[2].ticket, #all })
    local only = assert(locks:list { type = type .. "-b" })
    assert.same({ young.ticket, 1 }, { only[1].ticket, #only })
    assert.equal(old.ticket, locks:list { older_than = locks:list { type = type }[1].age }[1].ticket)
    assert.same({}, locks:list { older_than = 3600 })
  end)

  it("names may have 64 of their characters, and differ by case", function()
    type = ("aA0_.:@+-"):rep(8):sub(1, 64)
    local lock = assert(locks:mutex(type, type):acquire { timeout = 5, ticket = type })
    fails("busy", locks:mutex(type, type):try_acquire())
    assert(locks:mutex(type:upper(), type):try_acquire())
    assert(locks:mutex(type, type:lower()):try_acquire())
    fails("not_held", locks:break_lock(type, type, type:lower()))
    assert.is_true(lock:verify())
    assert.equal(type, locks:list { type = type }[1].type)
    assert.is_true(lock:release())
  end)

  it("scopes release at their end, also by an error", function()
    local mutex, rwlock, opts = locks:mutex(type, id), locks:rwlock(type, id), { timeout = 0 }
    assert.same({ true, 1, nil, 3 }, { mutex:with(function(lock, ...)
      assert.equal("mutex", lock.kind)
      return ...
    end, 1, nil, 3) })
    assert.is_true(rwlock:with_read(opts, function(lock) assert.equal("read", lock.kind) end))
    assert.same({ true, opts }, { rwlock:with_read({}, function(_, given) return given end, opts) })
    assert.is_true(rwlock:with_write(function(lock)
      fails("busy", mutex:with({ timeout = 0 }, error))
      return lock:release()
    end))
    assert.same({ false, "oh" }, { pcall(mutex.with, mutex, function() error("oh", 0) end) })
    fails("lost", mutex:with(function(lock) locks:break_lock(type, id, lock.ticket) end))
    assert.equal("", kinds())
  end)

  local closing_it = coroutine.close and it or busted.pending

  closing_it("scopes release when the coroutine is closed in which their function yields", function()
    for _, with in ipairs{
      function(fn) return locks:mutex(type, id):with(fn) end,
      function(fn) return locks:rwlock(type, id):with_read({ timeout = 0 }, fn) end,
    } do
      local thread = coroutine.create(function() return with(coroutine.yield) end)
      assert(coroutine.resume(thread))
      assert.not_equal("", kinds())
      assert(coroutine.close(thread))
      assert.equal("", kinds())
    end
  end)

  it("setup and close may be called again", function()
    assert.is_true(locks:setup() and locks:setup())
    assert.is_true(locks:close() and locks:close())
    fails("closed", locks:mutex(type, id):try_acquire())
    fails("closed", locks:list())
  end)
end
