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

describe("an acquire", function()
  it("takes one step if nobody holds the lock", function()
    for verb, step in pairs{ read = "read", write = "wait" } do
      local store, wait = scene(true, HELD)
      assert.equal(5000, acquire(store, wait, verb, { timeout = 1 }))
      assert.same({ step }, store.verbs)
    end
    local store, wait = scene(true, HELD)
    assert.equal(5000, acquire(store, wait, "write", { timeout = 0 }))
    assert.same({ "write" }, store.verbs)
  end)

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

  it("polls, and withdraws when its time is over", function()
    local store, wait = scene(true, BUSY)
    local result, message, code = acquire(store, wait, "write", { timeout = 10, poll = 1 })
    assert.is_nil(result)
    assert.same({ "timeout: after 10 seconds job 1 is held by other", "timeout" }, { message, code })
    assert.equal(110, wait.time)
    assert.equal("withdraw", table.remove(store.verbs))
    for _, verb in ipairs(store.verbs) do assert.equal("wait", verb) end
    for _, seconds in ipairs(wait.slept) do assert.is_true(seconds <= 1.5) end
    assert.is_true(#store.verbs >= 7, #store.verbs .. " steps")
  end)

  it("of a writer says at least every 3 seconds that it waits, however rare its polls", function()
    local store, wait = scene(true, BUSY)
    acquire(store, wait, "write", { timeout = 60, poll = 3600 })
    for _, seconds in ipairs(wait.slept) do assert.is_true(seconds <= 3) end
    store, wait = scene(true, BUSY)
    acquire(store, wait, "read", { timeout = 60, poll = 3600 })
    assert.same({ 60 }, wait.slept)
    assert.same({ "read", "read" }, store.verbs)
  end)

  it("withdraws after an error in on_wait, which comes out", function()
    local store, wait = scene(true, BUSY)
    local fine, problem = pcall(acquire, store, wait, "write", { on_wait = function() error("enough", 0) end })
    assert.same({ false, "enough" }, { fine, problem })
    assert.same({ "wait", "withdraw" }, store.verbs)
  end)
end)

describe("a step whose answer was lost", function()
  it("is repeated over another connection until it is known what it did", function()
    local store, wait = scene(true, DOUBT, DOWN, DOWN, CONTENDED, HELD)
    assert.equal(5000, acquire(store, wait, "write", { timeout = 60 }))
    assert.equal(5, #store.verbs)
    for i = 2, 4 do assert.is_true(wait.slept[i] >= wait.slept[i - 1] * 0.5) end
  end)

  it("is repeated over the connection that was given, if it was contended", function()
    local store, wait = scene(false, CONTENDED, CONTENDED, HELD)
    assert.equal(5000, acquire(store, wait, "write", { timeout = 60 }))
    assert.equal(3, #store.verbs)
  end)

  it("leaves the acquire in doubt when others hold the lock until the end: it may be executed later", function()
    local store, wait = scene(true, DOUBT, BUSY)
    local result, message, code = acquire(store, wait, "read", { timeout = 5 })
    assert.is_nil(result)
    assert.equal("in_doubt", code)
    assert.is_truthy(message:find("may be held, under the ticket mine: ", 1, true))
    assert.equal("withdraw", store.verbs[#store.verbs])
  end)

  it("is undone after an error in on_wait: nobody is told the ticket", function()
    for reason, verbs in pairs{ ["in_doubt: "] = { "read", "verify", "withdraw" },
                               ["is held by"] = { "read", "read", "verify", "withdraw" } } do
      local store, wait = scene(true, DOUBT, BUSY)
      local fine, problem = pcall(acquire, store, wait, "read", { on_wait = function(_, why)
        if why:find(reason, 1, true) then error("enough", 0) end
      end })
      assert.same({ false, "enough" }, { fine, problem })
      assert.same(verbs, store.verbs)
    end
  end)

  it("is not repeated without a function for connections", function()
    local store, wait = scene(false, DOUBT)
    local _, message, code = acquire(store, wait, "write", { timeout = 60 })
    assert.equal("in_doubt", code)
    assert.is_truthy(message:find("^in_doubt: job 1 may be held, under the ticket mine: cut"), message)
    assert.same({ "wait", "verify" }, store.verbs)
  end)

  it("does not release what the caller's own ticket may hold from before", function()
    local store, wait = scene(false, DOUBT)
    assert.equal("in_doubt", select(3, acquire(store, wait, "write", { timeout = 60, ticket = "mine" })))
    assert.same({ "wait", "withdraw" }, store.verbs)
    store, wait = scene(false, DOUBT)
    assert.equal("in_doubt", select(3, acquire(store, wait, "read", { timeout = 60, ticket = "mine" })))
    assert.same({ "read" }, store.verbs)
  end)

  it("is told to on_wait and, once, to the log", function()
    local store, wait = scene(true, DOWN, DOWN, BUSY, HELD)
    local told, logged = {}, {}
    function wait.log(level, message) table.insert(logged, level .. " " .. message) end
    local function on_wait(_, why) table.insert(told, why) end
    assert.equal(5000, acquire(store, wait, "read", { timeout = 9, on_wait = on_wait }))
    assert.same({ "warning unreachable: down" }, logged)
    assert.same({ "unreachable: down", "unreachable: down", "job 1 is held by other" }, told)
  end)

  it("is what the ticket has: the lock, or, of the caller's own ticket, an earlier one that is taken over", function()
    local store, wait = scene(true, DOUBT, MINE)
    assert.equal(5000, acquire(store, wait, "write", { timeout = 60 }))
    store, wait = scene(true, DOUBT, MINE, LOST, MINE, { "held", 5001 })
    assert.equal(5001, acquire(store, wait, "write", { timeout = 60, ticket = "mine" }))
    assert.same({ "wait", "wait", "adopt", "wait", "adopt" }, store.verbs)
  end)

  -- Lua 5.1 cannot catch an error of a function that may yield.
  local protected_it = require("dblocks.clock").protected == pcall and it or pending
  protected_it("is told when sleep raises an error then, and otherwise the error comes out", function()
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

  it("that was released after all is said to be", function()
    local store, wait = scene(false, DOUBT, HELD, RELEASED)
    local _, message = acquire(store, wait, "write", { timeout = 2 })
    assert.is_truthy(message:find("it was released", 1, true))
    store, wait = scene(false, DOUBT, LOST)
    _, message = acquire(store, wait, "write", { timeout = 2 })
    assert.is_falsy(message:find("it was released", 1, true))
  end)
end)
