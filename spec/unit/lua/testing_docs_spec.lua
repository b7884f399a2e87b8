-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Runs the tests of examples/testing, and the job and the test that docs/testing.md shows.
local process = require "spec.support.process"

-- Runs Lua source, with these names beside the global ones.
local function run(source, where, names)
  local env = setmetatable(names, { __index = _G })
  if not setfenv then return assert(load(source, where, "t", env))() end
  return setfenv(assert(loadstring(source, where)), env)()
end

local function names()
  return { describe = describe, it = it, before_each = before_each, assert = assert }
end

describe("examples/testing", function()
  run(assert(process.contents "examples/testing/nightly_spec.lua"), "=nightly_spec", names())
end)

describe("docs/testing.md", function()
  local programs = {}
  for program in process.contents("docs/testing.md"):gmatch "```lua\n(.-)```" do table.insert(programs, program) end

  it("shows a job and its test", function() assert.equal(2, #programs) end)

  local its = names()
  local nightly = run(programs[1], "=job", {})
  function its.require(name) return name == "nightly" and nightly or require(name) end
  run(programs[2], "=test", its)
end)
