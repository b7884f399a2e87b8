-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Calls that are cut off at their steps: their coroutine is closed, an error is raised, the connection or one lock is
-- lost. A step is each wait, and each function of the program that the library calls. Whatever the call was about to
-- acquire, held or released is free afterwards, for other connections, without the garbage collector. This is tested on
-- native connections whose waits yield as those of an event loop do; loops_spec has the loops.
local amqplocks = require "amqplocks"
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local failing_close = require "spec.support.failing_close"
local gate = require "spec.support.gate"
local kinds = require "spec.support.kinds"
local lfs = require "lfs"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local MANY = 200 -- more steps than anything has here
local SOAKS = os.getenv "AMQPLOCKS_SOAK" -- otherwise some steps are left out: see every_step()
local SECONDS = 60

local step -- what happens at each step now

local function on_step() step() end

before_each(function()
  collectgarbage "stop"
  step = function() end
end)

after_each(function()
  step = function() end
  stage.clear()
  collectgarbage "restart"
end)

teardown(stage.check)

-- A connection whose waits and callbacks are steps. Its on_lost raises an error.
local function connect(cut)
  local label = client.unique "cut"
  local conn = stage.connect(nil, { name = label, log = on_step, on_lost = function()
    step()
    error("on_lost's own error", 0)
  end })
  stage.wait_by(conn, function(wait, operation)
    step()
    wait(operation)
  end)
  if cut.listens then conn:on_event(on_step) end
  return conn, label
end

-- Ways to be cut off. `run` runs work() and cuts it off at its n-th step. It returns whether work() has come to its end
-- before. `first`: the step at which a walk begins that leaves out every second one. `listens`: there is a listener for
-- events. `renews`: each work() gets a connection of its own; it would wait for the attempts to connect otherwise.
local cuts = {}

local function yields()
  if coroutine.isyieldable() then coroutine.yield() end
end

local function close_at(n, work)
  step = yields
  local thread = coroutine.create(work)
  for _ = 1, n do
    if coroutine.status(thread) ~= "dead" then assert(coroutine.resume(thread)) end
  end
  local is_over = coroutine.status(thread) == "dead"
  assert(coroutine.close(thread))
  return is_over
end

if coroutine.close then
  cuts["at steps at which its coroutine is closed"] = { run = close_at, first = 1, listens = true }
end

local function act_at(n, work, act, ...)
  local count, arguments = 0, { ... }
  function step()
    count = count + 1
    if count == n then act((table.unpack or unpack)(arguments)) end
  end
  local fine, problem = pcall(work)
  assert(fine or count >= n, problem)
  return count < n
end

cuts["at steps at which an error is raised"] = {
  first = 2,
  run = function(n, work) return act_at(n, work, error, "cut off", 0) end,
}

if broker.suite then
  cuts["at steps at which its connection is lost"] = {
    renews = true, listens = true, is_operated = true,
    run = function(n, work, label)
      return act_at(n, work, pcall, broker.suite.close_connection, broker.suite, label .. " holder")
    end,
  }

  cuts["at steps at which one lock is lost"] = {
    is_operated = true,
    run = function(n, work, _, queue)
      return act_at(n, work, pcall, broker.suite.delete_queue, broker.suite, queue)
    end,
  }
end

-- A block whose end releases. Nothing, where Lua has none.
local scope = coroutine.close and load [[
  local object, opts = ...
  local lock <close> = assert(object:acquire(opts))
]] or function() end

-- Each is walked through for one lock (in the long run of each kind), the first one for the others, and for what an
-- operator ends.
local USES = {
  function(object, opts) assert(object:with(opts, function(lock) assert(lock:verify()) end)) end,
  function(object, opts) assert(assert(object:acquire(opts)):release()) end,
  scope,
}

-- `names` makes what the locks are called. `work(conn, names, cut, use)` returns the function that is cut off; it calls
-- `use`, which is each of those above if `is_used`. `rivals(conn, names)` returns what must be free after that.
-- `queue(names)`: of one of the locks.
local things = {}

for kind, makes in pairs(kinds.all) do
  things[kind] = {
    names = function() return { makes.name() } end,
    is_used = kind == "mutex" or SOAKS,
    work = function(conn, names, _, use)
      local object = makes.over(conn, names[1])
      return function() use(object, { timeout = 60 }) end
    end,
    rivals = function(conn, names) return { kinds.all[kind == "read" and "write" or kind].over(conn, names[1]) } end,
  }
end

local function three_names() return { gate.name(), gate.name(), stage.semaphore(1) } end

local function three_rivals(conn, names)
  return { conn:mutex(names[1]), conn:rwlock(names[2]):writer(), conn:semaphore(names[3]) }
end

local function third_queue(names) return stage.holder(names[3], 1) end

things["several locks, of several connections"] = {
  names = three_names,
  work = function(conn, names, cut, use)
    local all = conn:all{
      conn:mutex(names[1]), conn:rwlock(names[2]):reader(), conn:semaphore(names[3]), connect(cut):mutex(names[2]),
    }
    return function() use(all, { timeout = 60 }) end
  end,
  rivals = function(conn, names)
    local all = three_rivals(conn, names)
    table.insert(all, conn:mutex(names[2]))
    return all
  end,
  queue = third_queue,
}

things["several locks, of which the last one is not free"] = {
  names = function()
    local names = { gate.name(), gate.name(), gate.name() }
    table.sort(names)
    gate.occupy("mutex", names[3])
    return names
  end,
  work = function(conn, names)
    local all = conn:all{ conn:mutex(names[1]), conn:mutex(names[2]), conn:mutex(names[3]) }
    return function() all:acquire{ timeout = 0.05, on_wait = on_step } end
  end,
  rivals = function(conn, names) return { conn:mutex(names[1]), conn:mutex(names[2]) } end,
  queue = function(names) return gate.queue("mutex", names[1]) end,
}

things["several slots"] = {
  names = function()
    local name = stage.semaphore(3)
    stage.undo(function() stage.delete(name .. "-manybell") end)
    return { name }
  end,
  work = function(conn, names, _, use)
    local object = conn:semaphore(names[1])
    return function() use(object, { timeout = 60, count = 3 }) end
  end,
  rivals = function(conn, names)
    return { conn:semaphore(names[1]), conn:semaphore(names[1]), conn:semaphore(names[1]) }
  end,
  queue = function(names) return stage.holder(names[1], 2) end,
}

things["a reentrant mutex in itself, and among several locks"] = {
  names = function() return { gate.name(), gate.name() } end,
  work = function(conn, names, _, use)
    local mutex = conn:mutex(names[1], { reentrant = true, owner = "me" })
    local all = conn:all{ mutex, conn:mutex(names[2]) }
    return function()
      assert(mutex:with({ timeout = 60 }, function()
        use(mutex)
        use(all)
      end))
    end
  end,
  rivals = function(conn, names) return { conn:mutex(names[1]), conn:mutex(names[2]) } end,
  queue = function(names) return gate.queue("mutex", names[1]) end,
}

things["the first lock of a connection"] = {
  renews = true,
  names = function() return { gate.name() } end,
  work = function(conn, names, _, use)
    local mutex = conn:mutex(names[1])
    return function() use(mutex, { timeout = 60 }) end
  end,
  rivals = function(conn, names) return { conn:mutex(names[1]) } end,
}

things["a writer that becomes a reader"] = {
  names = function() return { gate.name() } end,
  work = function(conn, names)
    local rwlock = conn:rwlock(names[1])
    return function() assert(rwlock:with_write({ timeout = 60 }, function(lock) assert(lock:downgrade()) end)) end
  end,
  rivals = function(conn, names) return { conn:rwlock(names[1]):writer() } end,
  queue = function(names) return gate.queue("write", names[1]) end,
}

things["an election"] = {
  names = function() return { gate.name() } end,
  work = function(conn, names)
    return function()
      assert(conn:elect(names[1], { on_wait = on_step }, function(lock) assert(lock:verify()) end))
    end
  end,
  rivals = function(conn, names) return { conn:mutex(names[1]) } end,
  queue = function(names) return gate.queue("mutex", names[1]) end,
}

things["a connection with several locks that is closed"] = {
  renews = true,
  names = three_names,
  work = function(conn, names)
    assert(conn:all(three_rivals(conn, names)):acquire{ timeout = 60 })
    return function() conn:close() end
  end,
  rivals = three_rivals,
  queue = third_queue,
}

local function assert_free(rivals, n)
  local taken = {}
  for i, rival in ipairs(rivals) do
    taken[i] = until_true(function()
      local lock, message = rival:try_acquire()
      return lock, ("lock %d, after step %d: %s"):format(i, n, tostring(message))
    end, SECONDS)
  end
  for _, lock in ipairs(taken) do assert(lock:release()) end
end

-- A single lock and a connection are cut off at each step. Several locks take steps of the same kinds: the coroutine is
-- closed at every second one, and an error is raised at the others. An operator strikes at every fifth.
local function every_step(what, cut)
  if not SOAKS and cut.is_operated then return 5 end
  return (SOAKS or kinds.all[what] or things[what].renews or not coroutine.close) and 1 or 2
end

local function walk(what, cut, use)
  local thing, every = things[what], every_step(what, cut)
  local names = thing.names()
  local rivals, queue = thing.rivals(stage.connect(), names), thing.queue and thing.queue(names)
  local conn, label, work
  for n = every == 2 and cut.first or 1, MANY, every do
    if not conn or cut.renews or thing.renews then
      conn, label = connect(cut)
      work = thing.work(conn, names, cut, use)
    end
    local is_over = cut.run(n, work, label, queue)
    step = function() end
    assert.equal(0, conn:stats().held)
    assert_free(rivals, n)
    if is_over then return end
  end
  error "it never came to its end"
end

for what, thing in pairs(things) do
  describe(what, function()
    for how, cut in pairs(cuts) do
      -- A lock alone, and its connection that is lost, is in `make soak` only: a connection for each step.
      local is_short = not (kinds.all[what] and cut.renews)
      local can = thing.queue or how ~= "at steps at which one lock is lost"
      if can and (is_short or SOAKS) then
        it("is free " .. how, function()
          for i = 1, thing.is_used and not cut.is_operated and #USES or 1 do walk(what, cut, USES[i]) end
        end)
      end
    end
  end)
end

if not coroutine.close then return end

describe("a coroutine that is closed", function()
  local function close_when(is_there, work)
    step = yields
    local thread = coroutine.create(work)
    until_true(function()
      assert(coroutine.resume(thread))
      return is_there()
    end, SECONDS)
    assert(coroutine.close(thread))
    step = function() end
  end

  for kind, makes in pairs(kinds.all) do
    it("while it waits for its lock, which others have when it comes free, and not it: " .. kind, function()
      local name = makes.name()
      local own, rival = makes.over((connect({})), name), kinds.rival(kind, name)
      local held, is_told = assert(rival:acquire{ timeout = SECONDS }), false
      close_when(function() return is_told end, function()
        own:acquire{ timeout = 60, poll = 0.05, on_wait = function() is_told = true end }
      end)
      assert(held:release())
      for _, one in ipairs{ rival, own } do assert_free({ one }, 0) end
    end)
  end

  it("behind the door, on which it waited for a reader, opens it", function()
    local name = gate.name()
    local own, other = connect({}):rwlock(name), stage.connect():rwlock(name)
    local reader, reason = assert(other:try_read()), nil
    close_when(function()
      local is_there = reason == "a reader holds the lock"
      if is_there then stage.fails("busy", stage.connect():rwlock(name):try_read()) end
      return is_there
    end, function() own:write{ timeout = 60, on_wait = function(_, why) reason = why end } end)
    assert_free({ stage.connect():rwlock(name):reader() }, 0)
    assert(reader:release())
  end)

  it("while it becomes a reader leaves a lock that knows what it is", function()
    local rwlock, n, is_over = connect({}):rwlock(gate.name()), 0
    repeat
      local lock = assert(rwlock:write{ timeout = SECONDS })
      n = n + 1
      is_over = close_at(n, function() assert(lock:downgrade()) end)
      step = function() end
      assert.is_true(lock:verify())
      assert.same({ select(3, lock._core:info()) }, { lock.ticket, lock.acquired_at, lock.kind })
      assert(lock:release())
    until is_over or n == MANY
    assert.is_true(is_over)
  end)

  for what, makes in pairs {
    ["a semaphore"] = { stage.semaphore, function(conn, name) return conn:admin(name, { timeout = 10 }) end },
    ["a token semaphore"] = { kinds.all.permit.name, function(conn, name) return conn:token_semaphore(name) end },
  } do
    it("while it administers " .. what .. " leaves that to others", function()
      local name, size, n, is_over = makes[1](1), 1, -1
      local own, other = makes[2]((connect({})), name), makes[2](stage.connect(), name)
      repeat
        n = n + 2 -- each step that it takes, it takes for two slots more
        is_over = close_at(n, function()
          assert(own:resize(3))
          assert(own:resize(1))
        end)
        step = function() end
        size = 3 - size
        until_true(function()
          local count, message = other:resize(size, { timeout = 10 })
          if not count and what == "a token semaphore" then other:repair() end -- marks may be there, and no permits yet
          return count == size, message
        end, SECONDS)
      until is_over or n >= MANY
      assert.is_true(is_over)
      assert.equal(1, other:resize(1))
    end)
  end

  local function descriptors()
    local count = 0
    for _ in lfs.dir "/proc/self/fd" do count = count + 1 end
    return count
  end

  for how, log in pairs { [""] = coroutine.yield,
    [", also where the log throws at that"] = failing_close(coroutine.yield, "it throws") } do
    it("while it connects leaves no connection" .. how, function()
      local before = descriptors()
      local thread = coroutine.create(function() return amqplocks.connect(nil, { log = log }) end)
      assert(coroutine.resume(thread))
      assert.equal("suspended", coroutine.status(thread))
      assert.is_true(descriptors() > before)
      coroutine.close(thread)
      until_true(function() return descriptors() == before end)
    end)
  end
end)
