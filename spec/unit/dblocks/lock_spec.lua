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

-- Whether clients are renewed, the kind, the answers; then calls and their codes ("ok").
for title, row in pairs{
  ["a release ends the lock"] = { false, "mutex", { RELEASED }, "release ok", "release not_held", "verify not_held" },
  ["a lock that is not there is lost when it is released"] = { false, "mutex", { LOST }, "release lost",
    "release not_held" },
  ["a release in doubt that is called again finds the lock, and releases it"] = { false, "mutex", { DOUBT, RELEASED },
    "release in_doubt", "release ok", "release not_held" },
  ["a release in doubt that is called again finds no lock: it is not told that it was lost"] = { false, "mutex",
    { DOUBT, LOST }, "release in_doubt", "release in_doubt", "release not_held" },
  ["a release in doubt that is repeated by another client, which finds no lock: the same"] = { true, "mutex",
    { DOUBT, LOST }, "release in_doubt", "release not_held" },
  ["a release that stays in doubt is given up, and may be called again"] = { true, "mutex", { DOUBT },
    "release in_doubt", "release in_doubt" },
  ["a release that is refused may be called again"] = { true, "read", { REFUSED, RELEASED }, "release refused",
    "release ok" },
  ["a question whose answer is lost has changed nothing"] = { false, "mutex", { DOUBT, HELD }, "verify unreachable",
    "verify ok" },
  ["a downgrade that was refused leaves a writer"] = { false, "write", { REFUSED, HELD }, "downgrade refused",
    "kind write", "downgrade ok", "kind read" },
  ["a downgrade of a lock that is not there is told that it was lost"] = { false, "write", { LOST }, "downgrade lost" },
} do
  it(title, function()
    local held, verbs = scene(row[1], row[2], (table.unpack or unpack)(row[3]))
    for i = 4, #row do
      local call, code = row[i]:match "(%S+) (%S+)"
      local count = #verbs
      if call == "kind" then
        assert.equal(code, held.kind)
      elseif code == "ok" then
        assert.is_true(held[call](held))
      else
        fails(code, held[call](held))
      end
      if code == "not_held" then assert.equal(count, #verbs) end
    end
  end)
end

it("a lock has no unlock(), and says what to call", function()
  local held = scene(false, "mutex", RELEASED)
  assert.error_matches(function() held:unlock() end, "unlock: there is no lock:unlock(); call release", 1, true)
end)

it("a guard needs a lock in SQL, which was not released, and a connection", function()
  local held, connection = scene(false, "mutex", RELEASED), { execute = print }
  assert.error_matches(function() held:guard(connection) end, "guard: only locks in SQL", 1, true)
  function held._locks._store.guard(_, one, _, ticket, since)
    assert.same({ connection, "mine", 5000 }, { one, ticket, since })
    return "held"
  end
  for word, other in pairs{ ["nil"] = false, ["a table"] = held, ["file %("] = io.stdout, ['"BEGIN"'] = "BEGIN" } do
    assert.error_matches(function() held:guard(other or nil) end,
      "guard: the connection must be one of LuaSQL, not " .. word)
  end
  assert.is_true(held:guard(connection) and held:release())
  fails("not_held", held:guard(connection))
end)

it("the end of a lock's scope releases it, and logs what it cannot return", function()
  local held, verbs, logged = scene(false, "mutex", REFUSED, RELEASED)
  local close = getmetatable(held).__close
  close(held)
  assert.same({ "refused: no" }, logged)
  close(held)
  close(held)
  assert.same({ "leave", "leave" }, verbs)
  assert.equal(1, #logged)
end)
