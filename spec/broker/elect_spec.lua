-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Elections: one leads at a time, and stands again after each loss.
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local gate = require "spec.support.gate"
local process = require "spec.support.process"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

-- A process that stands for election, and appends a line to the file when it begins to lead, and when it has noticed
-- that it does not any more.
local CANDIDATE = [[
  local name, label, path = ...
  local socket = require "socket"
  local conn = assert(require("amqplocks").connect(nil, { name = label, heartbeat = 3 }))
  local function tell(word)
    local file = assert(io.open(path, "a"))
    file:write(label, " ", word, "\n")
    file:close()
  end
  return conn:elect(name, { fenced = true }, function(lock)
    tell(("leads %.0f"):format(lock.fence))
    while lock:held() do socket.sleep(0.01) end
    tell "ends"
  end)]]

-- A name for an election, and a file for its candidates.
local function new()
  local name, path = gate.name(), os.tmpname()
  stage.undo(function() os.remove(path) end)
  stage.undo(function() assert(stage.connect():mutex(name):forget_fence()) end)
  return name, path
end

local function candidate(name, path)
  local one = process.start()
  one.label = client.unique "candidate"
  one:begin(CANDIDATE, name, one.label, path)
  return one
end

local function lines(path, word)
  local list = {}
  for label in (process.contents(path) or ""):gmatch("(%S+) " .. word .. "[^\n]*\n") do table.insert(list, label) end
  return list
end

local function await(path, word, count)
  until_true(function() return #lines(path, word) >= count, process.contents(path) end)
  return lines(path, word)[count]
end

stage.tidy()

describe("an election", function()
  it("has one leader at a time; the next one leads when it is killed", function()
    local name, path = new()
    local both = { candidate(name, path), candidate(name, path) }
    local first = await(path, "leads", 1)
    assert.is_nil(lines(path, "leads")[2])
    local leader, other = both[1], both[2]
    if first ~= leader.label then leader, other = other, leader end
    leader:kill()
    assert.equal(other.label, await(path, "leads", 2))
    local terms = {}
    for term in process.contents(path):gmatch "leads (%d+)" do table.insert(terms, tonumber(term)) end
    assert.is_true(terms[1] < terms[2])
  end)

  operated_it("is stood for again after a loss: by a leader that was stopped, too", function()
    local name, path = new()
    local one = candidate(name, path)
    await(path, "leads", 1)
    broker.suite:close_connection(one.label .. " holder")
    await(path, "ends", 1)
    await(path, "leads", 2)
    local other = candidate(name, path)
    one:signal "STOP"
    assert.equal(other.label, await(path, "leads", 3))
    one:signal "CONT"
    assert.equal(one.label, await(path, "ends", 2))
    other:kill()
    assert.equal(one.label, await(path, "leads", 4))
  end)

  it("is over when fn returns or fails while it leads, or the connection is closed, by fn or while it waits", function()
    local conn, name = stage.connect(), gate.name()
    assert.error_matches(function() conn:elect(name, function() error "mine" end) end, "mine")
    assert.is_false(gate.held("mutex", name))
    assert.same({ true, name, nil, 7 }, { conn:elect(name, function(lock, x) return lock.name, nil, x end, 7) })
    assert.is_false(gate.held("mutex", name))
    assert.same({ true, "done" }, { conn:elect(name, function()
      conn:close()
      return "done"
    end) })
    local other = stage.connect()
    gate.occupy("mutex", name)
    stage.fails("closed", other:elect(name, { on_wait = function() other:close() end }, function() end))
  end)

  it("is over when `stop` says so, while it waits and before a term", function()
    local conn, name = stage.connect(), gate.name()
    gate.occupy("mutex", name)
    local asked = 0
    assert.same({ true }, { conn:elect(name, { stop = function()
      asked = asked + 1
      return asked == 3
    end }, function() error "it leads" end) })
    assert.equal(3, asked)
    assert(conn:mutex(gate.name()):try_acquire()):release() -- the connection is not hurt
  end)

  it("ends with a code that waiting does not mend", function()
    local conn, name = stage.connect(), gate.name()
    local channel = stage.client():channel()
    local queue = gate.queue("mutex", name)
    assert(channel:call{ method = "queue.declare", queue = queue })
    stage.fails("squatted", conn:elect(name, function() end))
    assert(channel:call{ method = "queue.delete", queue = queue })
  end)
end)
