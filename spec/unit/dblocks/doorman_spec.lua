-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Every row that there can be, under every verb: the whole of the doorman's table.
local doorman = require "dblocks.doorman"

local NOW, THEN = 1000000, 900000 -- milliseconds
local SILENCE = 10000

local function decide(row, verb) return { doorman.decide(row, verb, "mine", NOW) } end

-- name, row, what each verb gives; a verb that is not named: "lost"
local function crowd(inside, since, pending, age)
  return { ticket = "readers", acquired_at = THEN, inside = inside, since = since, pending = pending,
           pending_at = pending and NOW - age }
end

local LOST, READERS = { "lost" }, { "busy", nil, "readers" }
local MINE, OTHER = { "busy", nil, "mine" }, { "busy", nil, "other" } -- holds it, or waits
local ANNOUNCE = { "busy", "announce", "readers" }
local ENTER, ALONE = { "held", "enter", NOW }, { "held", "alone", NOW }
local IN = { "held", nil, THEN }

local cases = {
  { "nothing", nil,
    read = ENTER, write = ALONE, wait = ALONE, leave = LOST, verify = LOST, downgrade = LOST },
  { "a writer, me", { ticket = "mine", acquired_at = THEN },
    read = MINE, write = IN, wait = IN, leave = { "released", "free" }, verify = IN,
    downgrade = { "held", "share", THEN } },
  { "a writer, another", { ticket = "other", acquired_at = THEN },
    read = OTHER, write = OTHER, wait = OTHER, leave = LOST, verify = LOST, downgrade = LOST },
  { "two other readers", crowd(2),
    read = ENTER, write = READERS, wait = ANNOUNCE, leave = LOST, verify = LOST, downgrade = LOST },
  { "a reader, me", crowd(1, THEN),
    read = IN, write = READERS, wait = ANNOUNCE, leave = { "released", "free" }, verify = IN,
    downgrade = IN },
  { "two readers, one of them me", crowd(2, THEN),
    read = IN, write = READERS, wait = ANNOUNCE, leave = { "released", "exit" }, verify = IN,
    downgrade = IN },
  { "readers, and another writer waits", crowd(2, nil, "other", 1000),
    read = OTHER, write = OTHER, wait = OTHER, leave = LOST, verify = LOST, downgrade = LOST },
  { "readers, and another writer waited", crowd(2, nil, "other", SILENCE),
    read = ENTER, write = READERS, wait = ANNOUNCE, leave = LOST, verify = LOST, downgrade = LOST },
  { "readers, and a writer waits by a clock that was set back", crowd(2, nil, "other", -SILENCE),
    read = ENTER, write = READERS, wait = ANNOUNCE, leave = LOST, verify = LOST, downgrade = LOST },
  { "me, the last reader, and another writer waits", crowd(1, THEN, "other", 1000),
    read = IN, write = OTHER, wait = OTHER, leave = { "released", "exit" }, verify = IN, downgrade = IN },
  { "me, the last reader, and another writer waited", crowd(1, THEN, "other", SILENCE),
    read = IN, write = READERS, wait = ANNOUNCE, leave = { "released", "free" }, verify = IN,
    downgrade = IN },
  { "readers, and I wait", crowd(2, nil, "mine", 1000),
    read = MINE, write = READERS, wait = READERS,
    withdraw = { "released", "withdraw" }, leave = { "released", "withdraw" }, verify = LOST, downgrade = LOST },
  { "readers, and I said 3 seconds ago that I wait", crowd(2, nil, "mine", 3000),
    read = MINE, write = READERS, wait = ANNOUNCE,
    withdraw = { "released", "withdraw" }, leave = { "released", "withdraw" }, verify = LOST,
    downgrade = LOST },
  { "readers, and I waited", crowd(2, nil, "mine", SILENCE),
    read = ENTER, write = READERS, wait = ANNOUNCE,
    withdraw = { "released", "withdraw" }, leave = { "released", "withdraw" }, verify = LOST,
    downgrade = LOST },
  { "no reader is left, and I wait", crowd(0, nil, "mine", 1000),
    read = MINE, write = ALONE, wait = ALONE,
    withdraw = { "released", "free" }, leave = { "released", "free" }, verify = LOST, downgrade = LOST },
  { "no reader is left, and another writer waits", crowd(0, nil, "other", 1000),
    read = OTHER, write = OTHER, wait = OTHER, leave = LOST, verify = LOST, downgrade = LOST },
  { "no reader is left, and another writer waited", crowd(0, nil, "other", SILENCE),
    read = ENTER, write = ALONE, wait = ALONE, leave = LOST, verify = LOST, downgrade = LOST },
}

describe("the doorman finds", function()
  for _, case in ipairs(cases) do
    for _, verb in ipairs{ "read", "write", "wait", "withdraw", "leave", "verify", "downgrade" } do
      it(("%s; to %s"):format(case[1], verb), function() assert.same(case[verb] or LOST, decide(case[2], verb)) end)
    end
  end
end)

describe("the doorman", function()
  it("changes nothing that it is given", function()
    for _, case in ipairs(cases) do
      if case[2] then
        local copy = {}
        for key, value in pairs(case[2]) do copy[key] = value end
        for verb in pairs(case) do
          if type(verb) == "string" then decide(case[2], verb) end
        end
        assert.same(copy, case[2])
      end
    end
  end)

  it("knows no global but what the server of Redis has", function()
    local names = {}
    local environment = setmetatable({}, { __index = function(_, name) names[name] = true end })
    local text = doorman.source .. "return decide"
    local load_text = rawget(_G, "setfenv") and function()
      return rawget(_G, "setfenv")(loadstring(text), environment) -- luacheck: ignore 113
    end or function() return load(text, "doorman", "t", environment) end
    local decide_bare = load_text()()
    for _, case in ipairs(cases) do
      for verb in pairs(case) do
        if type(verb) == "string" then decide_bare(case[2], verb, "mine", NOW) end
      end
    end
    assert.same({}, names)
  end)
end)
