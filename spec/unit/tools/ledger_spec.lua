-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The judge of `make prove-fenced`, `make prove-fast` and `make prove-many`, by ledgers written by hand: what it must
-- find, and what it must not.
local ledger = require "tools.prove.ledger"

-- Lines separated by "; ".
local function check(lines, options) return ledger.check(lines:gsub("; *", "\n") .. "\n", options) end

local function violations(count, lines, options)
  local found = check(lines, options)
  assert.equal(count, #found.violations, table.concat(found.violations, "\n"))
  return found.violations[1], found
end

-- A lock from its ask to the moment at which it was certainly held.
local function lock(lane, number, kind, slot)
  return ("ask %s 1; got %s 1 %d %s %d; held %s 1; "):format(lane, lane, number, kind or "mutex", slot or 1, lane)
end

describe("the judge of fencing tokens", function()
  it("finds nothing where numbers grow, with gaps, and counts", function()
    local _, found = violations(0, lock("a", 7) .. lock("b", 8) .. "ask c 1; none c 1 timeout; " .. lock("d", 100))
    assert.same({ got = 3, held = 3, codes = { timeout = 1 }, largest = 100, beside = 1, violations = {} }, found)
  end)

  it("finds a number that was got twice, also by holders that nobody confirmed", function()
    local text = violations(1, "ask a 1; ask b 1; got a 1 7 mutex 1; got b 1 7 mutex 1")
    assert.matches("b/1 has the number 7, which a/1 had", text, 1, true)
  end)

  it("finds a number that is not larger than all that were got before its acquire began", function()
    local text = violations(1, "ask a 1; got a 1 9 mutex 1; ask b 1; got b 1 8 mutex 1")
    assert.matches("b/1 has the number 8; 9 was known when it asked", text, 1, true)
    violations(0, "ask a 1; ask b 1; got a 1 9 mutex 1; got b 1 8 mutex 1") -- drawn before, read later
    violations(1, "ask a 1; got a 1 9 slot 1; ask b 1; got b 1 8 slot 2")
  end)

  it("finds a lock that was certainly held after a lock with a larger number was", function()
    local both = "ask a 1; ask b 1; got b 1 9 %s; held b 1; got a 1 8 %s; held a 1"
    local text = violations(1, both:format("mutex 1", "mutex 1"))
    assert.matches("a/1 held it with the number 8, after b/1 did with 9", text, 1, true)
    violations(1, both:format("slot 1", "slot 1"))
    violations(0, both:format("slot 1", "slot 2"))
    violations(0, both:format("read 1", "read 1"))
    violations(1, both:format("write 1", "read 1"))
    violations(1, both:format("read 1", "write 1"))
    violations(0, (both:format("mutex 1", "mutex 1"):gsub("held a 1", "gone a 1 lost")))
  end)

  it("finds a holder that comes back, except where two may hold it at once", function()
    local back = lock("a", 7) .. lock("b", 8) .. "held a 1"
    violations(1, back)
    violations(0, back, { at_once = true })
    violations(1, "ask a 1; ask b 1; got b 1 9 mutex 1; held b 1; got a 1 8 mutex 1; held a 1", { at_once = true })
  end)

  it("numbers locks that have no number in the order in which they were certainly held", function()
    local both = "ask a 1; ask b 1; got b 1 none fast_mutex 1; got a 1 none fast_mutex 1; "
    violations(0, both .. "held a 1; held a 1; held b 1; held b 1; gone a 1 lost")
    local text = violations(1, both .. "held a 1; held b 1; held a 1")
    assert.matches("a/1 held it with the number 1, after b/1 did with 2", text, 1, true)
  end)

  it("finds a holder without a number that comes back, except while the nodes are not connected", function()
    local both = "ask a 1; ask b 1; got a 1 none fast_mutex 1; got b 1 none fast_mutex 1; held a 1; "
    violations(0, both .. "parted runner 0; held b 1; held a 1; gone a 1 lost; whole runner 0; held b 1")
    violations(1, both .. "parted runner 0; held b 1; held a 1; whole runner 0; held a 1")
    violations(1, both .. "held b 1; held a 1; parted runner 0")
    violations(1, "ask a 1; got a 1 7 mutex 1; ask b 1; got b 1 8 mutex 1; parted runner 0; held b 1; held a 1")
  end)

  it("counts locks that were held beside each other, and finds more than there may be", function()
    local three = ""
    for _, lane in ipairs { "a", "b", "c" } do
      three = three .. ("ask %s 1; got %s 1 none slot %d; held %s 1; "):format(lane, lane, lane:byte(), lane)
    end
    local _, found = violations(0, three, { most = 1 }) -- each was held for a moment
    assert.equal(1, found.beside)
    _, found = violations(0, three .. "held a 1; held c 1", { most = 2 })
    assert.equal(2, found.beside)
    local text = violations(1, three .. "held b 1; held a 1", { most = 2 })
    assert.equal("3 locks were held beside each other", text)
  end)

  it("finds a lane that got no lock in a minute", function()
    local first, second = lock("1.1", 7), lock("2.1", 8)
    violations(0, first .. second .. "minute runner 0; " .. lock("2.2", 9) .. lock("1.2", 10) .. "minute runner 0",
      { lanes = 2 })
    assert.equal("lane 2 got no lock in a minute",
      (violations(1, first .. second .. "minute runner 0; " .. lock("1.2", 9) .. "minute runner 0", { lanes = 2 })))
    violations(0, first .. second .. "minute runner 0; " .. lock("1.2", 9), { lanes = 2 }) -- not over yet
  end)

  it("ignores the last line of a process that was killed while it wrote", function()
    local found = ledger.check "ask a 1\ngot a 1 7 mutex 1\nask b 1\ngot b 1 7"
    assert.equal(0, #found.violations)
  end)
end)
