-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Waiting at the doorbell (the queue whose messages wake waiters), without faults: which waiter is woken, in which
-- order, and that nothing is left behind there. Waiters here recheck only every ten minutes, so one that gets a slot
-- was woken.
local broker = require "spec.support.broker"
local gate = require "spec.support.gate"
local line = require "spec.support.line"
local proxy = require "spec.support.proxy"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)
local SOAK = os.getenv "AMQPLOCKS_SOAK"

local function soak(short, long) return SOAK and long or short end

local function upwards(last)
  local list = {}
  for i = 1, last do list[i] = i end
  return list
end

-- A lock on a connection of its own.
local function hold(name) return stage.take(stage.connect():semaphore(name)) end

-- Waits until an operation of the core is done.
local function complete(conn, operation)
  until_true(function()
    if not operation:done() then conn._session:wait(operation) end
    return operation:done()
  end)
end

-- Waits until one has found no slot, and is the last of so many at the bell.
local function stands(conn, operation, name, consumers)
  until_true(function()
    if not operation:waiting() then conn._session:wait(operation) end
    return operation:waiting()
  end)
  line.until_at(name, 0, consumers)
end

after_each(stage.clear)
teardown(stage.check)

describe("those who wait", function()
  for fair, how in pairs{ [false] = "", [true] = ", if they are fair" } do
    it("are served in the order of their arrival, one after the other" .. how, function()
      local name = line.semaphore(1)
      local held, waiting = hold(name), {}
      for i, one in ipairs(line.processes(name, 20)) do waiting[i] = line.join(one, { fair = fair }) end
      line.until_at(name, 0, 21)
      assert.is_true(line.all_wait(waiting))
      assert(held:release())
      assert.same(upwards(20), line.serve(waiting))
      line.settled(name, 1)
    end)
  end

  it("are served by priority, and in the order of their arrival within one", function()
    local name, waiting = line.semaphore(1), {}
    local held, priorities = hold(name), { 0, 5, -3, 5, 0, 32767, -32768, 5 }
    for i, one in ipairs(line.processes(name, #priorities)) do
      waiting[i] = line.join(one, { priority = priorities[i] })
    end
    assert(held:release())
    assert.same({ 6, 2, 4, 8, 1, 5, 3, 7 }, line.serve(waiting))
  end)

  it("are served on as many slots as there are", function()
    local name, held, waiting = line.semaphore(3), {}, {}
    for i = 1, 3 do held[i] = hold(name) end
    for i, one in ipairs(line.processes(name, 6)) do waiting[i] = line.join(one) end
    local first = { waiting[1], waiting[2], waiting[3] }
    for i = 1, 3 do
      assert(held[i]:release())
      local one, _, slot = line.next(waiting)
      assert.equal(i, slot)
      assert.equal(first[i], one)
    end
    assert.is_true(line.all_wait(waiting))
    line.until_at(name, 0, 6)
    line.leave(first[2])
    assert.equal(2, select(3, line.next(waiting)))
  end)
end)

describe("the only one that waits", function()
  local kinds = { slot = { new = function(conn, name) return conn:semaphore(name) end, begin = "acquire" } }
  kinds.mutex = { new = function(conn, name) return conn:mutex(name) end, begin = "acquire" }
  for _, side in ipairs{ "read", "write" } do
    kinds[side] = { new = function(conn, name) return conn:rwlock(name) end, begin = side }
  end

  for kind, makes in pairs(kinds) do
    -- At a semaphore's bell nobody knows to be first: a slot that is left with no sign may be meant for others.
    for _, sign in ipairs{ "a sign", kind ~= "slot" and "no sign" or nil } do
      it(("is told how things stand, and of no others, up to the lock: %s, left with %s"):format(kind, sign), function()
        local name = kind == "slot" and line.semaphore(1) or gate.name()
        local conn, gated = stage.connect(), kind == "read" and "write" or kind
        local function occupy()
          if sign == "no sign" then return gate.occupy(gated, name) end
          local other = makes.new(stage.connect(), name)
          return assert(other[gated == "write" and "write" or "acquire"](other))
        end
        local held = occupy()
        local core = makes.new(conn, name)._core
        local operation, reasons = core[makes.begin](core, 60, false, 0, sign == "a sign" and 600 or 0.05), {}
        until_true(function()
          conn._session:wait(operation)
          local seconds, reason = operation:waiting()
          if reason then reasons[reason] = true end
          if seconds and held then
            held:release()
            held = nil
          end
          return operation:done()
        end)
        assert.is_truthy(next(reasons))
        for reason in pairs(reasons) do
          assert.is_nil(reason:find "left to waiters" or reason:find "other waiters", reason)
        end
        assert.is_true(stage.finish(conn, operation):held())
      end)
    end
  end
end)

describe("a newcomer", function()
  -- One that takes every token there is or will be, as those at the head of an endless line.
  local function the_rest_of_the_world(name)
    local channel = stage.client():channel()
    assert(channel:call{ method = "basic.consume", queue = stage.bell(name), arguments = { ["x-priority"] = 100 } })
    assert(channel:await("basic.deliver"))
    return channel
  end

  it("that is fair leaves a free slot to those who came before; one that is not may be faster", function()
    local name = stage.semaphore(1)
    local world = the_rest_of_the_world(name)
    local sem = stage.connect():semaphore(name)
    local message = stage.times_out(function(seconds)
      return sem:acquire{ timeout = seconds, fair = true, poll = 600 }
    end, function() return world:delivered() end) -- it rang for them
    assert.matches("a slot is free, and left to waiters that may have come first", message, 1, true)
    stage.fails("busy", sem:acquire{ timeout = 0, fair = true })
    assert.equal(0, line.at(name))
    assert(stage.take(sem, { timeout = 20, poll = 600 }):release())
    assert(stage.take(sem):release())
    stage.fails("timeout", sem:acquire{ timeout = 0.3, fair = true })
  end)

  -- Three that take turns. Gives how often the last one was first again while the others waited.
  local function overtakings(fair)
    local name, path = line.semaphore(1, 3), os.tmpname()
    stage.undo(function() os.remove(path) end)
    local all, held = line.processes(name, 3), hold(name)
    for _, one in ipairs(all) do
      one:begin([[
        local path, fair, pid = ...
        local log = assert(io.open(path, "a"))
        for _ = 1, 30 do
          local lock = assert(sem:acquire{ poll = 600, fair = fair })
          log:write(pid, "\n") log:flush()
          assert(lock:release())
        end
      ]], path, fair, one.pid)
    end
    line.until_at(name, 0, 4)
    assert(held:release())
    for _, one in ipairs(all) do one:finish() end
    local turns, overtaken, last = 0, 0, nil
    for pid in io.lines(path) do
      turns = turns + 1
      if pid == last and turns <= 60 then overtaken = overtaken + 1 end
      last = pid
    end
    assert.equal(90, turns)
    return overtaken
  end

  -- A waiter that is slow where the machine is busy may be overtaken, and then there is a token too many for a while:
  -- one good run of a few will do.
  for fair, how in pairs{ [false] = "a newcomer", [true] = "a fair one" } do
    it("that comes again at once, " .. how .. ", finds itself behind those who wait", function()
      local least = math.huge
      for _ = 1, 5 do
        if least > 6 then least = math.min(least, overtakings(fair)) end
      end
      assert.is_true(least <= 6, least .. " times the last one was first again")
    end)
  end
end)

describe("an administrator", function()
  local conn, admin

  -- By an administrator, who has to get the books right as well.
  local function create(slots)
    local name = stage.name()
    conn = stage.connect()
    admin = conn:admin(name)
    assert.equal(slots, admin:create(slots))
    stage.undo(function()
      if line.at(name) then line.settled(name, admin.left) end
    end)
    admin.left = slots
    stage.undo(function()
      for i = 2, 4 do stage.delete(stage.slot(name, i)) end
    end)
    return name
  end

  it("gives each slot a token, and wakes as many as it adds slots", function()
    local name, waiting = create(1), {}
    line.settled(name, 1)
    local held = hold(name)
    for i, one in ipairs(line.processes(name, 4)) do waiting[i] = line.join(one) end
    assert.equal(3, admin:add(2))
    admin.left = 3
    local first, second = waiting[1], waiting[2]
    local slots = { [first] = 0, [second] = 0 }
    for _ = 1, 2 do
      local one, _, slot = line.next(waiting)
      slots[one] = slots[one] + slot
    end
    assert.same({ 2, 3 }, { math.min(slots[first], slots[second]), math.max(slots[first], slots[second]) })
    line.until_at(name, 0, 5)
    assert.is_true(line.all_wait(waiting))
    assert.equal(4, admin:resize(4))
    admin.left = 4
    assert.equal(4, select(3, line.next(waiting)))
    assert(held:release())
    assert.equal(1, select(3, line.next(waiting)))
  end)

  it("that destroys the semaphore wakes all who wait: not found", function()
    local name, waiting = create(1), {}
    local held = hold(name)
    for i, one in ipairs(line.processes(name, 4)) do waiting[i] = line.join(one, { fair = i % 2 == 0 }) end
    assert.is_true(admin:destroy())
    for _ = 1, 4 do
      local _, _, slot, message, code = line.next(waiting)
      stage.fails("not_found", slot, message, code)
    end
    assert.is_nil(line.at(name))
    assert.is_true(held:held())
    stage.fails("removed", held:verify())
    assert.is_true(held:release())
  end)

  operated_it("that takes a slot away leaves a token too many, which who is woken in vain throws away", function()
    local name, waiting = create(2), {}
    local kept, held = hold(name), hold(name)
    waiting[1] = line.join(line.process(name), { poll = 1 })
    local second = line.join(line.process(name))
    waiting[2] = second
    assert.equal(1, admin:remove(1))
    admin.left = 1
    assert(held:release())
    line.until_tokens(name, 1)
    line.until_at(name, 0, 3)
    assert.is_true(line.all_wait(waiting))
    assert.equal(2, admin:add(1))
    admin.left = 2
    local one, place, slot = line.next(waiting)
    assert.same({ 1, 2 }, { place, slot }) -- its place in the line is still the first
    assert.is_true(line.all_wait{ second })
    line.leave(one)
    assert.equal(second, (line.next(waiting)))
    assert(kept:release())
  end)
end)

describe("waiting that is given up", function()
  it("by its timeout leaves nothing at the bell, also while a token is on its way", function()
    local name = line.semaphore(1, 3)
    local busy, hasty = line.process(name), line.processes(name, 2)
    busy:begin([[
      local socket = require "socket"
      repeat
        local lock = assert(sem:acquire{ poll = 600 })
        socket.sleep(math.random() * 0.003)
        assert(lock:release())
      until socket.select({ spec }, nil, 0)[spec]
    ]])
    for i, one in ipairs(hasty) do
      one:begin([[
        local rounds, seed = ...
        local got, late, patience = 0, 0, 0.012
        math.randomseed(seed)
        for _ = 1, rounds do
          local lock, message, code = sem:acquire{ timeout = math.random() * patience, poll = 600 }
          if lock then got = got + 1 else late = late + 1 end
          patience = math.min(patience * (lock and 0.8 or 1.25), 1) -- so that as many are just in time as are just late
          if not lock and code ~= "timeout" then error(message) end
          if lock then assert(lock:release()) end
        end
        return got, late
      ]], soak(100, 3000), i)
    end
    local got, late = 0, 0
    for _, one in ipairs(hasty) do
      local g, l = one:finish(soak(120, 600))
      got, late = got + g, late + l
    end
    busy:begin("return true")
    for _ = 1, 2 do busy:finish() end
    assert.is_true(got > 0 and late > 0, got .. " were in time, " .. late .. " late")
    line.settled(name, 1, 3) -- and all of them are still there
  end)

  it("gives back a token that was sent before the broker knew", function()
    local name, between = line.semaphore(1), proxy.start()
    local held, hasty, heir = hold(name), line.process(name, nil, between.url), line.process(name)
    hasty:run("plain = take function take(...) return pcall(plain, ...) end")
    line.join(hasty)
    line.join(heir)
    between:switch("down", "hold")
    assert(held:release())
    line.until_at(name, 0, 2) -- it is sent, and does not arrive
    hasty:signal("INT")
    assert.is_false((hasty:finish()))
    between:switch("down", "pass")
    stage.fails("not_found", hasty:run("return conn:semaphore('spec.nothing'):try_acquire()"))
    assert.equal(1, (heir:finish()))
    line.leave(heir)
    line.settled(name, 1)
  end)

  -- Gives up after no step, after one, after two, until there are no more; gives how many there were.
  local function give_up_at_any_step(name, next_one)
    local ended, steps = false, 0
    while not ended do
      local held, conn = hold(name), stage.connect()
      local operation = conn:semaphore(name)._core:acquire(60, false, 0, 600)
      stands(conn, operation, name, 2)
      line.join(next_one)
      assert(held:release())
      line.until_at(name, 0, 2) -- the token is sent
      for _ = 1, steps do
        if not operation:done() then conn._session:wait(operation) end
      end
      ended = operation:done()
      operation:drop()
      -- From its first claim on a connection need not be used again.
      if steps == 0 then stage.fails("not_found", conn:semaphore("spec.nothing"):try_acquire()) end
      assert.equal(1, (next_one:finish()))
      line.until_at(name, 0, 1)
      line.leave(next_one)
      line.settled(name, 1)
      steps = steps + 1
    end
    return steps
  end

  it("at any step, with the token on its way, gives it to the next", function()
    local name = line.semaphore(1)
    local next_one = line.process(name)
    -- Where processors are short, what comes in several steps otherwise comes in one.
    until_true(function() return give_up_at_any_step(name, next_one) > 2 end, 60)
  end)

  it("by an error in whoever is told leaves nothing behind", function()
    local name = line.semaphore(1)
    local held, conn = hold(name), stage.connect()
    local fine, problem = pcall(function()
      return conn:semaphore(name):acquire{ poll = 600, on_wait = function() error("enough", 0) end }
    end)
    assert.same({ false, "enough" }, { fine, problem })
    line.until_at(name, 0, 1)
    assert(held:release())
    line.settled(name, 1)
  end)

  it("by SIGINT leaves nothing behind, also in a process that lives on", function()
    local name = line.semaphore(1)
    local held, other = hold(name), line.process(name)
    other:run("plain = take function take(...) return pcall(plain, ...) end")
    line.join(other)
    other:signal("INT")
    assert.is_false((other:finish()))
    line.until_at(name, 0, 1)
    assert(held:release())
    line.settled(name, 1)
  end)
end)

describe("whoever waits is told so", function()
  it("at once and then at most every second, and how things stand", function()
    local name = line.semaphore(1)
    stage.take_told(stage.connect():semaphore(name), hold(name), 3, "1 of 1 held")
  end)

  it("but not who finds a free slot", function()
    local sem = stage.connect():semaphore(line.semaphore(1))
    for _ = 1, 5 do
      local lock = assert(sem:acquire{ timeout = 20, on_wait = function() error("nobody waits", 0) end })
      assert(lock:release())
    end
  end)
end)

describe("without tokens", function()
  it("waiting works by looking: a semaphore of other software, which has no bell", function()
    local name = stage.name()
    stage.add(name, 1, 1)
    local occupant, other = stage.occupy(name, 1), line.process(name)
    line.begin(other, { poll = 0.1 })
    occupant:await_looks(4)
    occupant:release()
    assert.equal(1, (other:finish()))
    local third = line.process(name)
    line.begin(third, { poll = 0.1 })
    line.leave(other)
    assert.equal(1, (third:finish()))
    assert.is_nil(line.at(name))
  end)

  it("waiting works by looking: a holder that knows nothing of the bell", function()
    local name = stage.name()
    stage.hang(name, 0)
    stage.add(name, 1, 1)
    local occupant, other = stage.occupy(name, 1), line.process(name)
    line.join(other, { poll = 1 })
    occupant:await_looks(3)
    occupant:release()
    assert.equal(1, (other:finish()))
    local third = line.join(line.process(name)) -- which looks in ten minutes
    line.leave(other)                           -- but is rung for
    assert.equal(1, (third:finish()))
    line.until_at(name, 0, 1)
    line.leave(third)
    line.settled(name, 1)
  end)

  it("waiting works with the token that such a holder does not take", function()
    local name = line.semaphore(1)
    local occupant, other = stage.occupy(name, 1), line.process(name)
    line.begin(other)
    occupant:await_looks(6) -- and again and again
    occupant:release()
    assert.equal(1, (other:finish()))
  end)
end)

describe("several that wait on one connection", function()
  it("for several semaphores are each woken for its own", function()
    local conn, names, held, waiting = stage.connect(), {}, {}, {}
    for i = 1, 6 do
      names[i] = line.semaphore(1)
      held[i] = line.process(names[i])
      held[i]:run("assert(take(20))")
      waiting[i] = conn:semaphore(names[i])._core:acquire(nil, i % 2 == 0, 0, 600)
    end
    for i = 1, 6 do stands(conn, waiting[i], names[i], 2) end
    for _, i in ipairs{ 4, 1, 6, 2, 3, 5 } do
      held[i]:begin("lock:release()")
      complete(conn, waiting[i])
      for j = 1, 6 do
        if waiting[j] and j ~= i then assert.is_false(waiting[j]:done()) end
      end
      local lock = assert(waiting[i]:result())
      assert.is_true(lock:held() and stage.held(names[i], 1))
      complete(conn, lock:release())
      waiting[i] = false
      line.settled(names[i], 1)
    end
  end)

  it("for the same semaphore are woken in their order, by locks of their own connection, too", function()
    local name, conn = line.semaphore(2), stage.connect()
    local sem, other, waiting = conn:semaphore(name), hold(name), {}
    local own = stage.take(sem)
    for i = 1, 4 do
      waiting[i] = sem._core:acquire(nil, false, 0, 600)
      stands(conn, waiting[i], name, 2 + i)
    end
    local function served(i)
      complete(conn, waiting[i])
      for j = i + 1, 4 do assert.is_false(waiting[j]:done()) end
      return assert(waiting[i]:result())
    end
    assert(own:release())
    local first = served(1)
    assert(other:release())
    local second = served(2)
    for i, lock in ipairs{ first, second } do
      local released = lock:release()
      served(i + 2)
      assert.is_true(released:done())
    end
  end)
end)

describe("eight processes", function()
  local STORM = [[
    local rounds, tries, seed = ...
    local socket, counts = require "socket", { got = 0, late = 0, busy = 0 }
    math.randomseed(seed)
    for _ = 1, rounds do
      local what, lock, message, code = math.random(tries and 3 or 2), nil, nil, nil
      if what == 1 then
        lock, message, code = sem:acquire{ timeout = math.random() * 0.02, poll = 600, fair = math.random(2) == 1 }
      elseif what == 2 then
        lock, message, code = sem:acquire{ poll = 600, fair = math.random(2) == 1, priority = math.random(3) - 2 }
      else
        lock, message, code = sem:try_acquire()
      end
      if lock then
        assert(lock:held(), "not held")
        counts.got = counts.got + 1
        if math.random(4) == 1 then socket.sleep(math.random() * 0.003) end
        if math.random(8) > 1 then assert(lock:release()) end
        lock = nil
        collectgarbage()
        collectgarbage()
      elseif code == "timeout" then
        counts.late = counts.late + 1
      elseif code == "busy" or code == "contended" then
        counts.busy = counts.busy + 1
      else
        error(message)
      end
    end
    return counts.got, counts.late, counts.busy
  ]]

  -- No token is lost. Who claims without one, as its slot's is on its way to one who is slow, rings in the end: one too
  -- many, which whoever is woken by it in vain throws away. How many that are depends on how slow the broker is just
  -- now: what they may be at most is for spec/sim/surplus_spec.lua to say; here, that it is not one for each lock.
  for tries, how in pairs{ [false] = "or not for long", [true] = "or not at all" } do
    operated_it("that wait, " .. how .. ", lose no token, and throw away those too many", function()
      local name, rounds, got, refused = line.semaphore(3), soak(40, 2000), 0, 0
      local all = line.processes(name, 8)
      for i, one in ipairs(all) do one:begin(STORM, rounds, tries, i) end
      for _, one in ipairs(all) do
        local g, late, busy = one:finish(soak(60, 1200))
        assert.equal(rounds, g + late + busy)
        got, refused = got + g, refused + late + busy
      end
      assert.is_true(got > 0 and refused > 0)
      until_true(function() return select(2, line.at(name)) == 0 end)
      local left = line.at(name)
      assert.is_true(left >= 3 and left <= 3 + got / 2, ("%d tokens for 3 slots, %d locks"):format(left, got))
      for i = 1, 3 do assert.equal(i, all[i]:run("return take(20)")) end
      line.begin(all[4], { poll = 0.5 })
      line.until_tokens(name, 3)
      for i = 1, 3 do line.leave(all[i]) end
      assert.is_truthy(all[4]:finish())
      line.leave(all[4])
      line.settled(name, 3)
    end)
  end
end)
