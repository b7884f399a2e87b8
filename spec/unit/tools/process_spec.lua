-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The second processes of spec/support/process.lua.
local process = require "spec.support.process"

after_each(process.clear)

describe("a second process", function()
  it("returns as many results as its code, also where some are nil", function()
    local other = process.start()
    for values, count in pairs { ["true, nil"] = 2, ["nil, false"] = 2, ["nil, nil"] = 2, ["nil, nil, 3, nil"] = 4 } do
      assert.equal(count, select("#", other:run("return " .. values)), values)
    end
    assert.same({ nil, false }, { other:run "return nil, false" })
  end)

  it("has the processor time that it used", function()
    local other = process.start()
    local before = process.processor_seconds(other.pid)
    local used = other:run "local start = os.clock() repeat until os.clock() - start > 0.2 return os.clock() - start"
    assert.is_true(process.processor_seconds(other.pid) - before >= used - 0.05) -- /proc counts in hundredths
  end)
end)
