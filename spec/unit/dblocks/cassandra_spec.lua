-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- What errors of Cassandra mean to db-locks: a client that gives the answers. spec/dblocks has a real one.
local dblocks = require "dblocks"
local fails = require "spec.dblocks.support.fails"

-- A client whose answers are in a list: rows, or { message, code }, or "throw".
local function playing(answers)
  local client = { asked = {} }
  function client:execute(cql)
    table.insert(self.asked, cql)
    local answer = table.remove(answers, 1) or {}
    if answer == "throw" then error("broken pipe", 0) end
    if answer.message then return nil, answer.message, answer.code end
    return answer
  end
  return client
end

local function locks_of(client) return dblocks.cassandra(client, { table = "ks.mutexes", name = "me" }) end

local function failure(code) return { message = "as the server has it", code = code } end

local CLOCK = { { now = 1700000000000 } }
local APPLIED, REFUSED = { { ["[applied]"] = true } }, { { ["[applied]"] = false } }

local IN_DOUBT = { 0x0000, 0x1000, 0x1001, 0x1002, 0x1003, 0x1100, 0x1200, 0x1300, 0x1400, 0x1500, 0x1600, 0x1700 }
local REFUSALS = { 0x000A, 0x0100, 0x2000, 0x2100, 0x2200, 0x2300, 0x2400, 0x2500 }

describe("an error of Cassandra", function()
  it("during a change leaves it in doubt, unless the request was refused", function()
    for _, code in ipairs(IN_DOUBT) do
      local message = fails("in_doubt", locks_of(playing { CLOCK, {}, failure(code) }):mutex("a", 1):try_acquire())
      assert.is_truthy(message:find("under the ticket me.", 1, true))
    end
    for _, code in ipairs(REFUSALS) do
      fails("refused", locks_of(playing { CLOCK, {}, failure(code) }):mutex("a", 1):try_acquire())
    end
  end)

  it("during a question makes it unreachable, unless the request was refused", function()
    for _, code in ipairs(IN_DOUBT) do
      fails("unreachable", locks_of(playing { failure(code) }):mutex("a", 1):try_acquire())
      fails("unreachable", locks_of(playing { CLOCK, failure(code) }):mutex("a", 1):try_acquire())
      fails("unreachable", locks_of(playing { CLOCK, failure(code) }):rwlock("a", 1):try_read())
      fails("unreachable", locks_of(playing { CLOCK, failure(code) }):list())
      fails("unreachable", locks_of(playing { CLOCK, failure(code) }):setup())
    end
    for _, code in ipairs(REFUSALS) do
      fails("refused", locks_of(playing { failure(code) }):list())
    end
  end)

  it("is an answer, so the client is used on", function()
    local client = playing { CLOCK, {}, failure(0x1100), {}, {}, {}, APPLIED }
    local locks = locks_of(client)
    fails("in_doubt", locks:mutex("a", 1):try_acquire())
    assert(locks:mutex("a", 1):try_acquire())
  end)

  it("that is none gives the client up", function()
    for _, lost in ipairs { failure(nil), "throw", failure "closed", { { other = "row" } }, {} } do
      local locks = locks_of(playing { CLOCK, {}, lost, {}, APPLIED })
      fails("in_doubt", locks:mutex("a", 1):try_acquire())
      fails("unreachable", locks:mutex("a", 1):try_acquire())
    end
    for _, lost in ipairs { failure(nil), "throw" } do
      local locks = locks_of(playing { lost, CLOCK, APPLIED })
      fails("unreachable", locks:mutex("a", 1):try_acquire())
      fails("unreachable", locks:mutex("a", 1):try_acquire())
    end
  end)
end)

it("a table that is not named with its keyspace, or not at all, raises an error", function()
  for _, name in ipairs { "mutexes", "a.b.c", "a.b;", "1a.b", "a.b ", "" } do
    assert.error_matches(function() dblocks.cassandra(playing {}, { table = name }) end, "option table must be")
  end
  assert.error_matches(function() dblocks.cassandra(playing {}) end, "the option table must be given")
end)

it("a release is in doubt without its answer, and said so when it is asked again", function()
  local locks = locks_of(playing { CLOCK, {}, APPLIED, failure(0x1100), REFUSED, {} })
  local lock = assert(locks:mutex("a", 1):try_acquire())
  fails("in_doubt", lock:release())
  fails("in_doubt", lock:release())
  fails("not_held", lock:release())
end)

describe("setup", function()
  local function setup(ttl, durable, replication, sync)
    local client = playing {
      CLOCK,
      { { default_time_to_live = ttl } }, {}, { { durable_writes = durable, replication = replication } }, sync or {},
    }
    return locks_of(client):setup()
  end
  local SIMPLE = "org.apache.cassandra.locator.SimpleStrategy"

  it("says unsafe where locks would be forgotten", function()
    local one = { class = SIMPLE, replication_factor = "1" }
    local three = { class = "org.apache.cassandra.locator.NetworkTopologyStrategy", a = "1", b = "2" }
    local periodic = { { value = "periodic" } }
    assert.is_true(setup(0, true, three, periodic))
    fails("unsafe", setup(60, true, three))
    fails("unsafe", setup(0, false, three))
    fails("unsafe", setup(0, true, one, periodic))
    assert.is_true(setup(0, true, one, { { value = "batch" } }))
    assert.is_true(setup(0, true, one, failure(0x2200))) -- Cassandra 3 has no such table
    fails("unreachable", setup(0, true, one, failure(0x1200)))
  end)

  it("makes the table where there is none", function()
    local client = playing { CLOCK, {}, { type = "SCHEMA_CHANGE" }, {}, {} }
    assert.is_true(locks_of(client):setup())
    assert.is_truthy(client.asked[3]:find("CREATE TABLE IF NOT EXISTS ks.mutexes", 1, true))
  end)
end)
