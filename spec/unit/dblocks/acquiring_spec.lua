-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Acquiring, over a store that answers as the spec says.
local acquiring = require "dblocks.acquiring"

local RESOURCE = { type = "job", id = "1", words = "job 1" }

local DOUBT, DOWN, CONTENDED = { nil, "in_doubt: cut", "in_doubt" }, { nil, "unreachable: down", "unreachable" },
  { nil, "contended: others", "contended" }

-- A store with these answers, the last of them for ever; its verbs are noted. And a clock that only sleep moves.
local function scene(renews, ...)
  local answers, store = { ... }, { verbs = {} }
  function store.step(_, _, verb, ticket)
    assert.equal("mine", ticket)
    table.insert(store.verbs, verb)
    local answer = answers[math.min(#store.verbs, #answers)]
    return answer[1], answer[2], answer[3]
  end
  function store.renews() return renews end
  local wait = { slept = {}, time = 100 }
  function wait.now() return wait.time end
  function wait.sleep(seconds)
    table.insert(wait.slept, seconds)
    wait.time = wait.time + seconds
  end
  return store, wait
end

local function acquire(store, wait, verb, how)
  how.poll = how.poll or 1
  return acquiring.acquire(store, wait, RESOURCE, verb, "mine", how)
end

local MINE = { "mine", 5000 }
local HELD, BUSY, RELEASED, LOST = { "held", 5000 }, { "busy", "other" }, { "released" }, { "lost" }

-- Whether clients are renewed, the verb, the options, the answers, of which the last one is for ever; then the fence,
-- or the code and words of the message; then the steps.
local OWN = { timeout = 60, ticket = "mine" }
for title, row in pairs{
  ["a reader takes one step if nobody holds the lock"] = { true, "read", { timeout = 1 }, { HELD }, 5000, "read" },
  ["a writer that may wait takes one step, too"] = { true, "write", { timeout = 1 }, { HELD }, 5000, "wait" },
  ["a writer that tries takes one step, too"] = { true, "write", { timeout = 0 }, { HELD }, 5000, "write" },
  ["a step whose answer was lost is repeated over another connection until it is known what it did"] = { true, "write",
    { timeout = 60 }, { DOUBT, DOWN, DOWN, CONTENDED, HELD }, 5000, "wait wait wait wait wait" },
  ["a step that was contended is repeated over the connection that was given"] = { false, "write", { timeout = 60 },
    { CONTENDED, CONTENDED, HELD }, 5000, "wait wait wait" },
  ["a step that nobody has executed makes the acquire unreachable"] = { true, "write", { timeout = 2, poll = 9 },
    { DOWN }, "unreachable unreachable: down" },
  ["a step whose answer was lost leaves it in doubt when others hold the lock to the end: it may be executed later"] = {
    true, "read", { timeout = 5, poll = 9 }, { DOUBT, BUSY }, "in_doubt may be held, under the ticket mine: " },
  ["a step whose answer was lost is not repeated without a function for connections"] = { false, "write",
    { timeout = 60 }, { DOUBT }, "in_doubt in_doubt: job 1 may be held, under the ticket mine: cut", "wait verify" },
  ["a step in doubt does not release what a writer's own ticket may hold from before"] = { false, "write", OWN,
    { DOUBT }, "in_doubt under", "wait withdraw" },
  ["a step in doubt does not release what a reader's own ticket may hold from before"] = { false, "read", OWN,
    { DOUBT }, "in_doubt under", "read" },
  ["a step whose answer was lost is what the ticket has"] = { true, "write", { timeout = 60 }, { DOUBT, MINE }, 5000,
    "wait wait" },
  ["an earlier lock of the caller's own ticket is taken over"] = { true, "write", OWN,
    { DOUBT, MINE, LOST, MINE, { "held", 5001 } }, 5001, "wait wait adopt wait adopt" },
  ["a step in doubt that was released after all is said to be"] = { false, "write", { timeout = 2 },
    { DOUBT, HELD, RELEASED }, "in_doubt it was released" },
} do
  it(title, function()
    local store, wait = scene(row[1], (table.unpack or unpack)(row[4]))
    local result, message, code = acquire(store, wait, row[2], row[3])
    if type(row[5]) == "number" then
      assert.equal(row[5], result)
    else
      local expected, words = row[5]:match "^(%S+) (.*)"
      assert.same({ nil, expected }, { result, code })
      assert.is_truthy(message:find(words, 1, true), message)
    end
    if row[6] then assert.equal(row[6], table.concat(store.verbs, " ")) end
    assert.is_true(wait.time <= 100.001 + row[3].timeout)
  end)
end

describe("an acquire", function()
  it("fails in doubt as long as an earlier one of its ticket may still be executed, then as it fails", function()
    local store, wait = scene(false, DOUBT, BUSY)
    local function code() return select(3, acquire(store, wait, "write", { timeout = 0, ticket = "mine" })) end
    assert.same({ "in_doubt", "in_doubt" }, { code(), code() })
    wait.time = wait.time + 6
    assert.equal("busy", code())
    store, wait = scene(false, DOUBT, BUSY)
    store.fenced = true -- what the second one has read excludes the first
    assert.same({ "in_doubt", "busy" }, { code(), code() })
  end)

  it("polls, and withdraws when its time is over; a writer says at least every 3 seconds that it waits", function()
    for _, row in ipairs{ { "write", 1, 1.5, 8 }, { "write", 3600, 3, 4 }, { "read", 3600, 10, 2 } } do
      local store, wait = scene(true, BUSY)
      local result, message, code = acquire(store, wait, row[1], { timeout = 10, poll = row[2] })
      assert.is_nil(result)
      assert.same({ "timeout: after 10 seconds job 1 is held by other", "timeout" }, { message, code })
      assert.equal(110, wait.time)
      assert.equal(row[1] == "write" and "withdraw" or "read", store.verbs[#store.verbs])
      for _, seconds in ipairs(wait.slept) do assert.is_true(seconds <= row[3]) end
      assert.is_true(#store.verbs >= row[4], #store.verbs .. " steps")
    end
  end)

  it("undoes its steps after an error in on_wait, which comes out: nobody is told the ticket", function()
    for _, row in ipairs{ { "write", "is held by", { BUSY }, "wait withdraw" },
      { "read", "in_doubt: ", { DOUBT, BUSY }, "read verify withdraw" },
      { "read", "is held by", { DOUBT, BUSY }, "read read verify withdraw" } } do
      local store, wait = scene(true, (table.unpack or unpack)(row[3]))
      assert.same({ false, "enough" }, { pcall(acquire, store, wait, row[1], { on_wait = function(_, why)
        if why:find(row[2], 1, true) then error("enough", 0) end
      end }) })
      assert.equal(row[4], table.concat(store.verbs, " "))
    end
  end)

  it("tells on_wait of steps that fail and, once, the log", function()
    local store, wait = scene(true, DOWN, DOWN, BUSY, HELD)
    local told, logged = {}, {}
    function wait.log(level, message) table.insert(logged, level .. " " .. message) end
    local function on_wait(_, why) table.insert(told, why) end
    assert.equal(5000, acquire(store, wait, "read", { timeout = 9, on_wait = on_wait }))
    assert.same({ "warning unreachable: down" }, logged)
    assert.same({ "unreachable: down", "unreachable: down", "job 1 is held by other" }, told)
  end)

  -- Lua 5.1 cannot catch an error of a function that may yield.
  local protected_it = require("dblocks.clock").protected == pcall and it or pending
  protected_it("in doubt tells it when sleep raises an error, and otherwise the error comes out", function()
    for first, second in pairs{ [DOUBT] = BUSY, [BUSY] = DOUBT } do
      local store, wait = scene(true, first, second)
      local sleep = wait.sleep
      function wait.sleep(seconds)
        if #store.verbs == 2 then error("aborted", 0) end
        sleep(seconds)
      end
      local _, message, code = acquire(store, wait, "read", {})
      assert.equal("in_doubt", code)
      assert.is_truthy(message:find("under the ticket mine: aborted", 1, true), message)
    end
    local store, wait = scene(true, BUSY)
    function wait.sleep() error("aborted", 0) end
    assert.same({ false, "aborted" }, { pcall(acquire, store, wait, "write", {}) })
    assert.same({ "wait", "withdraw" }, store.verbs)
  end)
end)
