-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- What spec/support/suite tells of spec files that fail, crash or are not there. It runs files made here. The address
-- of their broker is one that does not exist, since none of them uses it.
local process = require "spec.support.process"

it("the suite counts what failed, also a file that crashes or is not there, and runs the others", function ()
  local place = process.directory()
  finally(function () process.shell("rm", "-rf", place) end)
  local files = { "spec/unit/no_such_spec.lua" }
  for name, text in pairs{
    bad = 'it("is bad", function () error("so bad", 0) end) it("is not", function () end)',
    crashes = 'it("crashes", function () os.execute("kill -9 $PPID") end)', good = 'it("is good", function () end)',
  } do
    table.insert(files, ("%s/%s_spec.lua"):format(place, name))
    process.write(files[#files], text)
  end
  os.execute(("env -u SANITIZE_REPORTS -u GC AMQP_URL=amqp://nobody.invalid spec/support/suite %s >%s/output 2>&1")
    :format(table.concat(files, " "), place))
  local output = assert(process.contents(place .. "/output"))
  for _, line in ipairs{ "good_spec%.lua %.%.%. 1 passed, ", "bad_spec%.lua %.%.%. 1 passed, 1 FAILED, ", "so bad",
    "crashes_spec%.lua: the run ended before its last spec, with status 137\n",
    "there is no spec/unit/no_such_spec%.lua\n", "\n2 passed, 3 failed\n$" } do
    assert.matches(line, output)
  end
end)
