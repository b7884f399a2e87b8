-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A lock of db-locks, over a store that answers as the spec says.
local fails = require "spec.dblocks.support.fails"
local lock = require "dblocks.lock"

local RESOURCE = { type = "job", id = "1", words = "job 1" }

local HELD, RELEASED, LOST = { "held" }, { "released" }, { "lost" }
local DOUBT, REFUSED = { nil, "in_doubt: cut", "in_doubt" }, { nil, "refused: no", "refused" }

-- A lock of a store with these answers, the last of them for ever; the store's verbs; what was logged. A store that
-- renews its clients repeats a step for so long as a lock is patient, by a clock that only sleep moves.
local function scene(renews, kind, ...)
  local answers, verbs, logged, time = { ... }, {}, {}, 100
  local store = {}
  function store.step(_, _, verb, ticket)
    assert.equal("mine", ticket)
    table.insert(verbs, verb)
    local answer = answers[math.min(#verbs, #answers)]
    return answer[1], answer[2], answer[3]
  end
  function store.renews() return renews end
  local function now() return time end
  local function sleep(seconds) time = time + seconds end
  local locks = {
    name = "me", _store = store, _log = function(_, message) table.insert(logged, message) end,
    _wait = function() return { now = now, sleep = sleep } end,
  }
  return lock.new(locks, RESOURCE, kind, "mine", 5000), verbs, logged
end

describe("a release", function()
  it("ends the lock", function()
    local held, verbs = scene(false, "mutex", RELEASED)
    assert.is_true(held:release())
    fails("not_held", held:release())
    fails("not_held", held:verify())
    assert.same({ "leave" }, verbs)
    assert.error_matches(function() held:unlock() end, "unlock: there is no lock:unlock(); call release", 1, true)
  end)

  it("of a lock that is not there is told that it was lost", function()
    local held = scene(false, "mutex", LOST)
    fails("lost", held:release())
    fails("not_held", held:release())
  end)

  it("in doubt that is called again finds the lock, and releases it", function()
    local held = scene(false, "mutex", DOUBT, RELEASED)
    fails("in_doubt", held:release())
    assert.is_true(held:release())
    fails("not_held", held:release())
  end)

  it("in doubt that is called again finds no lock: it is not told that it was lost", function()
    local held = scene(false, "mutex", DOUBT, LOST)
    fails("in_doubt", held:release())
    fails("in_doubt", held:release())
    fails("not_held", held:release())
  end)

  it("in doubt is repeated by another client, which finds no lock: the same", function()
    local held, verbs = scene(true, "mutex", DOUBT, LOST)
    fails("in_doubt", held:release())
    fails("not_held", held:release())
    assert.same({ "leave", "leave" }, verbs)
  end)

  it("that stays in doubt is given up, and may be called again", function()
    local held, verbs = scene(true, "mutex", DOUBT)
    fails("in_doubt", held:release())
    local count = #verbs
    assert.is_true(count > 2, count .. " steps")
    fails("in_doubt", held:release())
    assert.is_true(#verbs > count)
  end)

  it("that is refused may be called again", function()
    local held = scene(true, "read", REFUSED, RELEASED)
    fails("refused", held:release())
    assert.is_true(held:release())
  end)
end)

describe("a question whose answer is lost", function()
  it("has changed nothing: unreachable", function()
    local held = scene(false, "mutex", DOUBT, HELD)
    fails("unreachable", held:verify())
    assert.is_true(held:verify())
  end)
end)

describe("a downgrade", function()
  it("that was refused leaves a writer", function()
    local held = scene(false, "write", REFUSED, HELD)
    fails("refused", held:downgrade())
    assert.equal("write", held.kind)
    assert.is_true(held:downgrade())
    assert.equal("read", held.kind)
  end)

  it("of a lock that is not there is told that it was lost", function()
    local held = scene(false, "write", LOST)
    fails("lost", held:downgrade())
  end)
end)

describe("the end of a lock's scope", function()
  it("releases it, and logs what it cannot return", function()
    local held, verbs, logged = scene(false, "mutex", REFUSED, RELEASED)
    local close = getmetatable(held).__close
    close(held)
    assert.same({ "refused: no" }, logged)
    close(held)
    close(held)
    assert.same({ "leave", "leave" }, verbs)
    assert.equal(1, #logged)
  end)
end)
