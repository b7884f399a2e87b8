-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- When an acquire may claim without a search. bold_claim_spec.lua is about what it sends.

local deciders = require "spec.support.deciders"

teardown(deciders.remove)

describe("boldness", function()
  local boldness

  before_each(function() boldness = deciders.boldness() end)

  local function is_enough() return deciders.boldness_is_enough(boldness) end

  local function wins(times)
    for _ = 1, times do deciders.boldness_win(boldness) end
  end

  -- A bold claim is lost so many times in a row, with as many wins between as it takes.
  local function loses(times)
    for _ = 1, times do deciders.boldness_loss(boldness) end
  end

  -- The number of wins in a row after which it is enough: k.
  local function needed()
    for n = 0, 5000 do
      if is_enough() then return n end
      wins(1)
    end
  end

  it("is enough after three wins, and stays enough with each one", function()
    assert.equal(3, needed())
    for _ = 1, 3000 do
      assert.is_true(is_enough())
      wins(1)
    end
  end)

  it("begins anew with a contest: k stays what it is", function()
    for before = 0, 4 do
      wins(before)
      deciders.boldness_contest(boldness)
      assert.is_false(is_enough())
      assert.equal(3, needed())
    end
  end)

  it("needs twice as many wins after each lost bold claim, 1024 at most", function()
    for _, k in ipairs{ 3, 6, 12, 24, 48, 96, 192, 384, 768, 1024, 1024 } do
      assert.equal(k, needed())
      loses(1)
      assert.is_false(is_enough())
    end
  end)

  it("keeps the doubled k over a contest", function()
    loses(1)
    wins(5)
    deciders.boldness_contest(boldness)
    assert.equal(6, needed())
  end)

  -- What k is after that many wins in a row, with two lost bold claims (k = 12) before.
  for at, k in pairs{ [1023] = 12, [1024] = 6, [2047] = 6, [2048] = 3, [3072] = 3, [4096] = 3 } do
    it(("needs %d wins after %d in a row"):format(k, at), function()
      loses(2)
      wins(at)
      deciders.boldness_contest(boldness)
      assert.equal(k, needed())
    end)
  end

  it("counts wins from the last contest on, towards a smaller k as well", function()
    loses(1)
    wins(1023)
    deciders.boldness_contest(boldness)
    wins(1023)
    deciders.boldness_contest(boldness)
    assert.equal(6, needed())
  end)
end)
