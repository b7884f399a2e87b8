-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- amqp-lock --restart: the command runs again when its lock was lost, and is acquired again. Another client holds the
-- lock in between, and sees that nothing of the command is left.
local broker = require "spec.support.broker"
local command = require "spec.support.command"
local gate = require "spec.support.gate"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)
local SECONDS = 60

after_each(function()
  command.clear()
  stage.clear()
end)
teardown(stage.check)

-- Starts one whose command prints "job PID"; returns it and that process.
local function start(...)
  local one = command.start({ fd = 7 }, "--restart", "--status-fd", "7", ...)
  return one, command.process(one:await("job (%d+)\n", SECONDS))
end

-- Waits until it has printed `word` so many times.
local function await_times(one, word, times)
  until_true(function()
    local _, count = one:output():gsub(word, "")
    return count == times, one:output()
  end, SECONDS)
end

local function await_told(one, event)
  until_true(function() return one:told():find(('{"event":"%s"'):format(event), 1, true), one:told() end, SECONDS)
end

local function events_of(one)
  local events = {}
  for event in one:told():gmatch '{"event":"([%l_]+)"' do
    if events[#events] ~= event then table.insert(events, event) end
  end
  return table.concat(events, " ")
end

local JOB = "echo job $$; exec sleep 600"

describe("amqp-lock --restart", function()
  operated_it("runs its command again when the next holder has released, and nothing of it lives meanwhile", function()
    local name = gate.name()
    local one, job = start("-W", name, "-c", "echo ticket $AMQP_LOCK_TICKET $AMQP_LOCK_OUTER_TICKETS .; " .. JOB)
    local waiter = gate.process("write", name)
    waiter:begin("return take(60)")
    until_true(function() return gate.has_bell("write", name) end, SECONDS)
    broker.suite:delete_queue(gate.queue("write", name))
    gate.served(waiter)
    until_true(function() return not job:alive() end, SECONDS)
    assert.is_nil(one:status())
    await_told(one, "lost")
    await_times(one, "job %d+\n", 1)
    assert.is_true(waiter:run("return lock:verify() and lock:release()"))
    await_times(one, "job %d+\n", 2)
    assert.is_true(gate.held("write", name))
    one:signal "TERM"
    assert.same({ "exit", 143 }, { one:wait() }, one:output())
    assert.is_false(gate.held("write", name))
    local first, second = one:output():match "ticket (%x+) %..*ticket (%x+) %."
    assert.is_true(first ~= second and second ~= nil, one:output())
    assert.matches("^[%l ]*acquired started lost ended .*acquired started ended released$", events_of(one))
  end)

  operated_it("goes on when the broker closes its connection, and waits for a broker that is away", function()
    local node = broker.start()
    stage.undo(function() node:remove() end)
    local one, job = start("--url", node.url, "--heartbeat=2", "--name", "restarted", "db", "-c", JOB)
    node:close_connection("restarted holder")
    await_times(one, "job %d+\n", 2)
    assert.is_false(job:alive())
    node:stop()
    await_told(one, "down")
    node:restart()
    await_times(one, "job %d+\n", 3)
    one:signal "TERM"
    assert.same({ "exit", 143 }, { one:wait(SECONDS) }, one:output())
  end)

  it("ends as its command does, if that ends by itself", function()
    local name = gate.name()
    assert.equal("once\n", command.ends({}, 3, "--restart", name, "-c", "echo once; exit 3"))
    command.ends({}, 75, "--restart", "-n", gate.holder("mutex", name).name, "true")
  end)

  operated_it("acquires numbers that grow", function()
    local name = gate.name()
    stage.undo(function() stage.delete(name .. "-mutexfence") end)
    local one = start("--fenced", name, "-c", "echo fence $AMQP_LOCK_FENCE.; " .. JOB)
    broker.suite:delete_queue(gate.queue("mutex", name))
    await_times(one, "job %d+\n", 2)
    local first, second = one:output():match "fence (%d+)%..*fence (%d+)%."
    assert.is_true(tonumber(second) > tonumber(first))
    one:signal "TERM"
    one:wait()
  end)

  operated_it("does not begin again when a signal has asked it to end, before or while it waits again", function()
    local name = gate.name()
    local one = start("--grace=2", name, "-c", "trap '' TERM; echo job $$; while :; do sleep 0.1; done")
    one:signal "TERM"
    broker.suite:delete_queue(gate.queue("mutex", name))
    assert.same({ "exit", 76 }, { one:wait(SECONDS) }, one:output())
    local again = start(name, "-c", JOB)
    local other = gate.process("mutex", name)
    other:begin("return take(60)")
    until_true(function() return gate.has_bell("mutex", name) end, SECONDS)
    broker.suite:delete_queue(gate.queue("mutex", name))
    gate.served(other)
    until_true(function() return again:told():find('"event":"lost".*"event":"waiting"'), again:told() end, SECONDS)
    again:signal "TERM"
    assert.same({ "signal", 15 }, { again:wait() }, again:output())
    assert.matches('{"event":"gave_up","signal":15}\n$', again:told())
    assert.is_true(other:run("return lock:verify()"))
  end)

  operated_it("gives up when it has not had the lock again within its time", function()
    local name = gate.name()
    local one = start("-w", "0.5", name, "-c", JOB)
    local other = gate.process("mutex", name)
    other:begin("return take(60)")
    until_true(function() return gate.has_bell("mutex", name) end, SECONDS)
    broker.suite:delete_queue(gate.queue("mutex", name))
    gate.served(other)
    assert.same({ "exit", 75 }, { one:wait(SECONDS) }, one:output())
  end)

  it("is refused with what makes no sense beside it", function()
    for _, words in ipairs{ { "--hold", "db" }, { "--on-lost", "ignore", "db", "true" } } do
      assert.matches("--restart", command.ends({}, 64, "--restart", (unpack or table.unpack)(words)), 1, true)
    end
  end)
end)
