-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The output of spec/support/suite while it runs, and its handling of spec files that fail, crash or hang. It runs
-- files made here. Their broker's address is one that does not exist, since none of them uses it.
local process = require "spec.support.process"
local until_true = require "spec.support.until"

local SLOW = [[
  local until_true = require "spec.support.until"
  it("passes at once", function () end)
  for n = 1, 2 do
    it("waits to be told", function ()
      until_true(function () return io.open(%q .. n) end, 30)
    end)
  end
]]

local ENVIRONMENT = { "-u", "SANITIZE_REPORTS", "-u", "GC", "AMQP_URL=amqp://nobody.invalid", "SUITE_PULSE=0.1" }

describe("the suite", function ()
  local place

  before_each(function () place = process.directory() end)
  after_each(function () process.shell("rm", "-rf", place) end)

  local function write(name, text)
    local file = assert(io.open(place .. "/" .. name, "w"))
    file:write(text)
    file:close()
    return place .. "/" .. name
  end

  local function read(name)
    local file = assert(io.open(place .. "/" .. name))
    local text = file:read "*a"
    file:close()
    return text
  end

  -- Runs it on files, with a rest of the line for the shell. What it prints is in place/output in the end.
  local function run(rest, ...)
    local words = { "env" }
    for _, word in ipairs(ENVIRONMENT) do table.insert(words, word) end
    table.insert(words, "spec/support/suite")
    for _, path in ipairs{ ... } do table.insert(words, path) end
    return os.execute(("%s %s"):format(table.concat(words, " "), rest:gsub("PLACE", place)))
  end

  local function await(pattern)
    return until_true(function ()
      local output = read "output"
      return output:match(pattern), output
    end)
  end

  -- Only when it has told of the file that is under way is that told to go on.
  it("tells what it is at before a slow file ends", function ()
    local slow = write("slow_spec.lua", SLOW:format(place .. "/go"))
    write("output", "")
    run("2>&1 | while IFS= read -r line; do printf '%s\\n' \"$line\"; done >PLACE/output &", slow)
    await "%.%.%. [^\n]*slow_spec%.lua %(1 passed in %d+ s%)\n"
    assert.not_matches("slow_spec%.lua %.%.%.", read "output")
    write("go1", "")
    await "slow_spec%.lua %(2 passed in"
    write("go2", "")
    await "\n[^\n]*slow_spec%.lua %.%.%. 3 passed, [%d.]+ s\n.*\n?3 passed, 0 failed\n$"
  end)

  it("ends with what failed and the sum of all files", function ()
    local good = write("good_spec.lua", 'it("is good", function () end)')
    local bad = write("bad_spec.lua", 'it("is bad", function () error("so bad", 0) end) it("is not", function () end)')
    run(">PLACE/output 2>&1", good, bad)
    local output = read "output"
    assert.matches("good_spec%.lua %.%.%. 1 passed, ", output)
    assert.matches("bad_spec%.lua %.%.%. 1 passed, 1 FAILED, ", output)
    assert.matches("so bad.*\n2 passed, 1 failed\n$", output)
  end)

  it("counts a file that crashes as a failure, and runs the others", function ()
    local crashes = write("crashes_spec.lua", 'it("crashes", function () os.execute("kill -9 $PPID") end)')
    local good = write("good_spec.lua", 'it("is good", function () end)')
    run(">PLACE/output 2>&1", crashes, good)
    local output = read "output"
    assert.matches("crashes_spec%.lua: the run ended before its last spec, with status 137\n", output)
    assert.matches("\n1 passed, 1 failed\n$", output)
  end)

  it("counts a file that is not there, or is empty, as a failure", function ()
    run(">PLACE/output 2>&1", "spec/unit/no_such_spec.lua")
    assert.matches("there is no spec/unit/no_such_spec%.lua\n", read "output")
    assert.matches("\n0 passed, %d failed\n$", read "output")
    run(">PLACE/output 2>&1", write("empty_spec.lua", ""))
    assert.matches("\n0 passed, 1 failed\n$", read "output")
  end)
end)
