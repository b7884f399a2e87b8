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
    { "if (a) b = c;", "negate: if (!(a)) b = c;" },
    { "for (a = b; c; d++) e = d;", "negate: for (a = b; !(c); d++) e = d;" },
    { "a = b < c;", "turn: a = b <= c;" },
    { "a = b || c->d;", "turn: a = b && c->d;" },
    { "a = 7u;", "plus: a = (7u + 1);", "minus: a = (7u - 1);" },
    { "a->b(c, d(e)); f = g(h);", "call: ; f = g(h);" },
    { "while (a()) b();", "negate: while (!(a())) b();", "call: while (a()) ;" },
    { "{ return a; } b = c;", "return: { ; } b = c;" },
    { "return a;", "return: return 0;" },
    { "return false;", "return: return 1;" },
    { "char a[8]; return;" },
    { [[/* 1; */ a = "\"2;" b; c = '3'; // f();]] .. "\n" },
    { "\n#define A(b) \\\n  if (b) f(1)\n" },
  } do
    it("of " .. row[1]:gsub("\n", " "), function ()
      assert.same({ (table.unpack or unpack)(row, 2) }, bodies(row[1]))
    end)
  end

  it("has its place, and is within a function", function ()
    local sites = mutants.sites "static int a[] = {1, 2};\nstruct b { int c; };\nvoid f(void) {\n  g();\n}\n"
    assert.equal(1, #sites)
    assert.same({ 4, 3, "call" }, { sites[1].line, sites[1].column, sites[1].kind })
  end)
end)

it("a draw is of different ones, decided by the seed, and a longer one begins with the shorter one", function ()
  assert.same({ 23, 29, 16 }, mutants.draw(3, 40, 1))
  assert.same(mutants.draw(3, 40, 1), { (table.unpack or unpack)(mutants.draw(30, 40, 1), 1, 3) })
  local drawn = mutants.draw(50, 40, 1)
  table.sort(drawn)
  assert.same({ 40, 1, 40 }, { #drawn, drawn[1], drawn[40] })
end)
