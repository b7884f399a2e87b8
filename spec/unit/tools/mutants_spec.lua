-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Which changes tools/mutate makes to a C file, and that a seed draws the same ones each time.
local mutants = require "tools.mutate.mutants"

-- The mutants of a function's body: "kind: the body with the change".
local function bodies(body)
  local text, changed = "int f(void) {" .. body .. "}", {}
  for _, site in ipairs(mutants.sites(text)) do
    assert.equal(1, site.line)
    table.insert(changed, site.kind .. ": " .. mutants.apply(text, site):match "^int f%(void%) {(.*)}$")
  end
  return changed
end

describe("a mutant", function ()
  for _, row in ipairs{
    { "for (a = b; c; d++) e = d;", "negate: for (a = b; !(c); d++) e = d;" },
    { "a = b < c;", "turn: a = b <= c;" },
    { "a = 7u;", "plus: a = (7u + 1);", "minus: a = (7u - 1);" },
    { "while (a()) b();", "negate: while (!(a())) b();", "call: while (a()) ;" },
    { "return false;", "return: return 1;" },
    { [[/* 1; */ a = "\"2;" b; c = '3'; // f();]] .. "\n" },
    { "\n#define A(b) \\\n  if (b) f(1)\n" },
  } do
    it("of " .. row[1]:gsub("\n", " "), function ()
      assert.same({ (table.unpack or unpack)(row, 2) }, bodies(row[1]))
    end)
  end
end)

it("a draw is of different ones, decided by the seed, and a longer one begins with the shorter one", function ()
  assert.same({ 23, 29, 16 }, mutants.draw(3, 40, 1))
  assert.same(mutants.draw(3, 40, 1), { (table.unpack or unpack)(mutants.draw(30, 40, 1), 1, 3) })
  local drawn = mutants.draw(50, 40, 1)
  table.sort(drawn)
  assert.same({ 40, 1, 40 }, { #drawn, drawn[1], drawn[40] })
end)
