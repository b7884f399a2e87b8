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
local IN, HAD = { "held", nil, THEN }, { "mine", nil, THEN }
local FREE, EXIT, WITHDRAW = { "released", "free" }, { "released", "exit" }, { "released", "withdraw" }
local SHARE, FOREIGN, RENEW = { "held", "share", THEN }, { "foreign" }, { "held", "renew", THEN + 1 }

local cases = {
  { "nothing", nil, read = ENTER, write = ALONE, wait = ALONE },
  { "a writer, me", { ticket = "mine", acquired_at = THEN }, read = MINE, write = HAD, wait = HAD, leave = FREE,
    verify = IN, adopt = RENEW, downgrade = SHARE },
  { "a writer, another", { ticket = "other", acquired_at = THEN }, read = OTHER, write = OTHER, wait = OTHER },
  { "readers whom others know", crowd(nil), read = FOREIGN, write = FOREIGN, wait = FOREIGN },
  { "two other readers", crowd(2), read = ENTER, write = READERS, wait = ANNOUNCE },
  { "a reader, me", crowd(1, THEN), read = HAD, write = READERS, wait = ANNOUNCE, leave = FREE, verify = IN,
    adopt = RENEW, downgrade = IN },
  { "two readers, one of them me", crowd(2, THEN), read = HAD, write = READERS, wait = ANNOUNCE, leave = EXIT,
    verify = IN, adopt = RENEW, downgrade = IN },
  { "readers, and another writer waits", crowd(2, nil, "other", 1000), read = OTHER, write = OTHER, wait = OTHER },
  { "readers, and another writer waited", crowd(2, nil, "other", SILENCE), read = ENTER, write = READERS,
    wait = ANNOUNCE },
  { "readers, and a writer waits by a clock that was set back", crowd(2, nil, "other", -SILENCE), read = ENTER,
    write = READERS, wait = ANNOUNCE },
  { "me, the last reader, and another writer waits", crowd(1, THEN, "other", 1000), read = HAD, write = OTHER,
    wait = OTHER, leave = EXIT, verify = IN, adopt = RENEW, downgrade = IN },
  { "me, the last reader, and another writer waited", crowd(1, THEN, "other", SILENCE), read = HAD, write = READERS,
    wait = ANNOUNCE, leave = FREE, verify = IN, adopt = RENEW, downgrade = IN },
  { "readers, and I wait", crowd(2, nil, "mine", 1000), read = MINE, write = READERS, wait = READERS,
    withdraw = WITHDRAW },
  { "readers, and I said 3 seconds ago that I wait", crowd(2, nil, "mine", 3000), read = MINE, write = READERS,
    wait = ANNOUNCE, withdraw = WITHDRAW },
  { "readers, and I waited", crowd(2, nil, "mine", SILENCE), read = ENTER, write = READERS, wait = ANNOUNCE,
    withdraw = WITHDRAW },
  { "no reader is left, and I wait", crowd(0, nil, "mine", 1000), read = MINE, write = ALONE, wait = ALONE,
    withdraw = FREE },
  { "no reader is left, and another writer waits", crowd(0, nil, "other", 1000), read = OTHER, write = OTHER,
    wait = OTHER },
  { "no reader is left, and another writer waited", crowd(0, nil, "other", SILENCE), read = ENTER, write = ALONE,
    wait = ALONE },
}

describe("the doorman finds", function()
  for _, case in ipairs(cases) do
    it(case[1], function()
      for _, verb in ipairs{ "read", "write", "wait", "withdraw", "leave", "verify", "downgrade", "adopt" } do
        assert.same(case[verb] or LOST, decide(case[2], verb), verb)
      end
    end)
  end
end)

it("the doorman takes what a ticket has got anew for another lock", function()
  for _, row in ipairs{ { ticket = "mine", acquired_at = THEN }, crowd(2, THEN) } do
    for _, verb in ipairs{ "leave", "verify", "downgrade", "adopt" } do
      assert.same(LOST, { doorman.decide(row, verb, "mine", NOW, THEN - 1) })
      assert.same(decide(row, verb), { doorman.decide(row, verb, "mine", NOW, THEN) })
    end
  end
end)
