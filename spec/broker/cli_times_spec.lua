-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- amqp-lock --at-least and --at-most: how long the lock is held, whatever its command does.
local broker = require "spec.support.broker"
local command = require "spec.support.command"
local gate = require "spec.support.gate"
local process = require "spec.support.process"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)
local SECONDS = 60

stage.tidy(command.clear)

local function start(jobs, ...) return command.start_jobs({ fd = 7 }, jobs, "--status-fd=7", ...) end

local function await_event(one, event)
  until_true(function() return one:told():find('{"event":"' .. event .. '"', 1, true), one:told() end, SECONDS)
end

-- Starts one whose command has ended, and which keeps the lock.
local function keeper(...)
  local one = command.start({ fd = 7 }, "--status-fd=7", "--at-least=3600", ...)
  await_event(one, "ended")
  return one
end

describe("amqp-lock --at-least", function()
  it("keeps the lock when its command has ended, for the time, and ends as its command did", function()
    local name = gate.name()
    keeper(name, "sh", "-c", "exit 7")
    command.ends({}, 75, "-n", name, "true")
    local one = command.start({ fd = 7 }, "--status-fd=7", "--at-least=1.5", gate.name(), "sh", "-c", "exit 7")
    assert.same({ "exit", 7 }, { one:wait() })
    assert.is_true(tonumber(one:told():match '{"event":"released",[^\n]*"held":([%d.]+)') >= 1.5)
  end)

  it("gives it back when the program itself is asked to end, or killed, or the command cannot be run", function()
    local name = gate.name()
    local one = keeper(name, "sh", "-c", "exit 7")
    assert.is_true(gate.held("mutex", name))
    one:signal "TERM"
    assert.same({ "exit", 7 }, { one:wait() })
    keeper(name, "true"):signal "KILL"
    gate.until_free("mutex", name)
    local two = start(1, "--at-least=3600", name, "sh", "-c", "echo job $$; exec sleep 600")
    two:signal "TERM"
    assert.same({ "exit", 143 }, { two:wait() })
    command.ends({}, 127, "--at-least=3600", name, "/no/such/command")
  end)

  operated_it("ends when the lock is lost, and leaves alone what its command has left behind", function()
    local name = gate.name()
    local one, jobs = start(1, "--at-least=3600", name, "-c", "sleep 600 >/dev/null 2>&1 & echo job $!")
    await_event(one, "ended")
    broker.suite:delete_queue(gate.queue("mutex", name))
    assert.same({ "exit", 76 }, { one:wait() })
    assert.is_true(jobs[1]:alive())
    assert.matches("amqp%-lock: lost: mutex", one:output())
    jobs[1]:signal "KILL"
    one = keeper("--on-lost=ignore", name, "sh", "-c", "exit 7")
    broker.suite:delete_queue(gate.queue("mutex", name))
    assert.same({ "exit", 7 }, { one:wait() })
    assert.equal(1, select(2, one:told():gsub('"event":"lost"', "")))
  end)

  it("gives it to an administrator who asks, with --on-revoke, before or after its command has ended", function()
    local admin = stage.connect()
    for _, job in ipairs { "true", "read line; exit 0" } do
      local name = gate.name()
      local one = command.start({ fd = 7, input = true }, "--status-fd=7", "--at-least=3600", "--on-revoke=USR1", name,
        "sh", "-c", "trap 'exit 0' USR1; echo in; " .. job)
      one:await "in\n"
      if job == "true" then await_event(one, "ended") end
      until_true(function() return admin:mutex(name):revoke() end, SECONDS)
      assert.same({ "exit", 0 }, { one:wait() })
    end
  end)
end)

operated_it("amqp-lock --held-file has a file while the lock is held, however that ends", function()
  local path = command.place() .. "/held"
  for _, ends in ipairs { "TERM", "KILL", "lost" } do
    local name = gate.name()
    local one, jobs = start(1, "--held-file", path, name, "-c", "cat " .. path .. "; echo job $$; exec sleep 600")
    assert.matches("^%x+\n$", process.contents(path))
    if ends == "lost" then broker.suite:delete_queue(gate.queue("mutex", name)) else one:signal(ends) end
    until_true(function() return not process.contents(path) end, SECONDS)
    jobs[1]:await_end(SECONDS)
  end
  local pipe = path .. ".pipe" -- the last one may still remove its file
  process.shell("mkfifo", pipe)
  for _, other in ipairs{ "/no/such/held", pipe } do
    assert.matches("--held-file", command.ends({}, 0, "--held-file", other, gate.name(), "true"), 1, true)
  end
end)

describe("amqp-lock --at-most", function()
  local DEAF = "trap '' TERM; echo job $$; (setsid sh -c 'trap \"\" TERM; echo job $$; while :; do sleep 1; done' &); "
    .. "while :; do sleep 1; done"

  it("ends its command and all its processes, and then gives the lock back; the status is 124", function()
    local name = gate.name()
    local one, jobs = start(2, "--at-most=2", "--grace=0.5", name, "-c", DEAF)
    gate.until_free("mutex", name)
    for _, job in ipairs(jobs) do assert.is_false(job:runs()) end
    assert.same({ "exit", 124 }, { one:wait() })
    assert.matches("amqp%-lock: expired: \"[^\n]+\" was held for 2 s %(%-%-at%-most%); the command is asked to end\n",
      one:output())
    assert.matches('\n{"event":"expired","name":"[^\n]+\n{"event":"ended","signal":9,[^\n]+\n{"event":"released"',
      one:told())
  end)

  it("leaves alone a command that ends in time, and sends KILL at once where the grace is 0", function()
    local name = gate.name()
    command.ends({}, 7, "--at-most=3600", name, "sh", "-c", "exit 7")
    command.ends({}, 124, "--at-most=0.1", "--grace=0", "--on-lost=ignore", name, "-c", DEAF)
  end)

  operated_it("asks a command to end that has outlived its lock, and gives it the grace", function()
    local name = gate.name()
    local one = start(1, "--on-lost=ignore", "--at-most=4", "--grace=600", "--heartbeat=2", name, "-c",
      "trap 'echo got TERM; exit 0' TERM; echo job $$; while :; do sleep 0.1; done")
    broker.suite:delete_queue(gate.queue("mutex", name))
    assert.same({ "exit", 124 }, { one:wait() })
    assert.matches("\ngot TERM\n", one:output())
  end)

  it("has its command ended by the guard, if the program is killed in between", function()
    local name = gate.name()
    local one, jobs = start(2, "--at-most=2", "--grace=4", "--heartbeat=4", name, "-c", DEAF)
    await_event(one, "expired")
    one:signal "KILL"
    gate.until_free("mutex", name)
    for _, job in ipairs(jobs) do assert.is_false(job:runs()) end
  end)

  it("ends --hold", function()
    local name = gate.name()
    assert.matches("^held %x+\nexpired\n", command.ends({}, 124, "--hold", "--at-most=0.1", name))
    assert.is_false(gate.held("mutex", name))
  end)
end)

it("amqp-lock says which options do not fit --at-least", function()
  for _, words in ipairs { { "--hold", "db" }, { "--restart", "db", "true" }, { "--at-most=0.5", "db", "true" } } do
    assert.matches("%-%-at%-least", command.ends({}, 64, "--at-least=1", (table.unpack or unpack)(words)))
  end
end)
