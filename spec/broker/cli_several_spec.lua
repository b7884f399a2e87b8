-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- amqp-lock with several locks: --all and --count. Other connections see which locks are held.
local broker = require "spec.support.broker"
local command = require "spec.support.command"
local gate = require "spec.support.gate"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

stage.tidy(command.clear)

-- Runs amqp-lock, which must end with this status; returns its output.
local function ends(status, ...) return command.ends({}, status, ...) end

-- One whose command says "in", and ends with its input.
local function start(...)
  local one = command.start({ input = true }, ...)
  one:await "in\n"
  return one
end

local IN = "echo in; read line; exit 0"

local function held(name, slots)
  local list = {}
  for slot = 1, slots do table.insert(list, stage.held(name, slot) and "x" or "-") end
  return table.concat(list)
end

describe("amqp-lock --all", function()
  local name, list, slots

  before_each(function()
    name, slots = gate.name(), stage.semaphore(2)
    stage.undo(function() stage.delete(name .. "-mutexbell") end)
    stage.undo(function() stage.delete(slots .. "-manybell") end)
    list = ("write:%s,slot:%s,mutex:%s"):format(name, slots, name)
  end)

  it("holds all of the locks while its command runs, tells it of them, and holds none after it", function()
    local one = start("--all", list, "sh", "-c", "echo $AMQP_LOCK_KIND; echo $AMQP_LOCK_NAME; "
      .. "echo ${AMQP_LOCK_SLOT-none}; echo $AMQP_LOCK_TICKETS; echo $AMQP_LOCK_TICKET; " .. IN)
    local kind, names, slot, tickets, first = one:output():match "^(.-)\n(.-)\n(.-)\n(.-)\n(.-)\nin\n$"
    assert.same({ "all", list, "none" }, { kind, names, slot })
    assert.matches("^%x+ %x+ %x+$", tickets)
    assert.equal(first, tickets:match "^%x+")
    assert.is_true(gate.held("mutex", name) and gate.held("write", name))
    assert.equal("x-", held(slots, 2))
    one:ends_with_input(0)
    assert.is_false(gate.held("mutex", name) or gate.held("write", name))
    assert.equal("--", held(slots, 2))
  end)

  it("holds none if one of them is not free in time", function()
    local lock = assert(stage.connect():rwlock(name):try_read())
    ends(75, "-w", "0.3", "--all", list, "true")
    assert.is_false(gate.held("mutex", name))
    assert.equal("--", held(slots, 2))
    assert.is_true(lock:release())
    stage.delete(name .. "-rwbell")
  end)

  it("takes the order of conn:all, whatever the order of its list", function()
    local names, conn = { name, gate.name() }, stage.connect()
    table.sort(names)
    local lock = assert(conn:mutex(names[1]):try_acquire())
    local one = command.start({ input = true }, "-v", "--all", ("mutex:%s,mutex:%s"):format(names[2], names[1]), "sh",
      "-c", IN)
    one:await "waiting"
    assert.is_false(gate.held("mutex", names[2]))
    assert.is_true(lock:release())
    one:await "in\n"
    stage.fails("timeout", conn:all({ conn:mutex(names[1]), conn:mutex(names[2]) }):acquire { timeout = 0.3 })
    one:ends_with_input(0)
    for _, each in ipairs(names) do stage.delete(each .. "-mutexbell") end
  end)

  operated_it("ends its command when one of them is lost, and releases the others", function()
    local one = command.start({}, "--all", list, "sh", "-c", "echo in; sleep 600")
    one:await "in\n"
    broker.suite:delete_queue(name .. "-mutex")
    assert.same({ "exit", 76 }, { one:wait() }, one:output())
    assert.matches("lost: mutex", one:output(), 1, true)
    until_true(function() return held(slots, 2) == "--" and not gate.held("write", name) end)
  end)

  it("refuses what is no list, one lock twice, and options of one lock", function()
    for list_of, words in pairs {
      mutex = "is not KIND:NAME", ["lock:a"] = "is no kind of lock", ["mutex:"] = "the name is empty",
      ["read:a,write:a"] = "read:a and write:a are one lock", ["mutex:a,mutex:a"] = "are one lock",
      ["mutex:a,"] = "is not KIND:NAME",
    } do
      assert.matches(words, ends(64, "--all", list_of, "true"), 1, true)
    end
    for _, option in ipairs { "-S", "--fenced", "--quorum", "--count=2" } do
      ends(64, "--all", "mutex:a,mutex:b", option, "true")
    end
    assert.matches("there is no COMMAND", ends(64, "--all", "mutex:a"), 1, true)
  end)
end)

it("amqp-lock --count holds several slots or permits, tells its command which, and creates them if there are none",
  function()
    local name = stage.name()
    stage.undo(function() stage.destroy(stage.connect(), name) end)
    assert.equal("1 2\n", ends(0, "--slots", "3", "--count", "2", name, "-c", "echo $AMQP_LOCK_SLOTS"))
    ends(0, "--permits", "2", "--count", "2", name, "true")
    local one = start("-S", "--count", "2", name, "sh", "-c", IN)
    assert.equal("xx-", held(name, 3))
    ends(75, "-n", "-S", "--count", "2", name, "true")
    ends(0, "-n", "-S", name, "true")
    one:ends_with_input(0)
    assert.equal("---", held(name, 3))
    assert.matches("limit", ends(69, "-S", "--count", "4", name, "true"), 1, true)
    assert.matches("option --count is for -S and -P", ends(64, "--count", "2", name, "true"), 1, true)
  end)
