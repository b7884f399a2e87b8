-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The output of spec/support/suite while it runs, and its handling of spec files that fail, crash or hang. It runs
-- files made here. Their broker's address is one that does not exist, since none of them uses it.
local process = require "spec.support.process"
local until_true = require "spec.support.until"

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

  local function read() return assert(process.contents(place .. "/output")) end

  -- Runs it on files; what it prints is in place/output in the end. `rest`: of the line for the shell.
  local function run(files, rest)
    return os.execute(("env -u SANITIZE_REPORTS -u GC AMQP_URL=amqp://nobody.invalid SUITE_PULSE=0.1 "
      .. "spec/support/suite %s 2>&1 %s >%s/output %s"):format(table.concat(files, " "),
      rest and "| while IFS= read -r line; do printf '%s\\n' \"$line\"; done" or "", place, rest or ""))
  end

  -- Only when it has told of the file that is under way is that told to go on.
  it("tells what it is at before a slow file ends", function ()
    local slow = write("slow_spec.lua", ([[
      local until_true = require "spec.support.until"
      it("passes at once", function () end)
      it("waits to be told", function () until_true(function () return io.open %q end) end)
    ]]):format(place .. "/go"))
    write("output", "")
    run({ slow }, "&")
    until_true(function () return read():match "%.%.%. [^\n]*slow_spec%.lua %(1 passed in %d+ s%)\n", read() end)
    assert.not_matches("slow_spec%.lua %.%.%.", read())
    write("go", "")
    until_true(function ()
      return read():match "\n[^\n]*slow_spec%.lua %.%.%. 2 passed, [%d.]+ s\n.*\n?2 passed, 0 failed\n$", read()
    end)
  end)

  it("counts what failed, also a file that crashes or is not there, and runs the others", function ()
    run{
      write("bad_spec.lua", 'it("is bad", function () error("so bad", 0) end) it("is not", function () end)'),
      write("crashes_spec.lua", 'it("crashes", function () os.execute("kill -9 $PPID") end)'),
      "spec/unit/no_such_spec.lua",
      write("good_spec.lua", 'it("is good", function () end)'),
    }
    for _, line in ipairs{ "good_spec%.lua %.%.%. 1 passed, ", "bad_spec%.lua %.%.%. 1 passed, 1 FAILED, ", "so bad",
      "crashes_spec%.lua: the run ended before its last spec, with status 137\n",
      "there is no spec/unit/no_such_spec%.lua\n", "\n2 passed, 3 failed\n$" } do
      assert.matches(line, read())
    end
    run{ write("empty_spec.lua", "") }
    assert.matches("\n0 passed, 1 failed\n$", read())
  end)
end)
