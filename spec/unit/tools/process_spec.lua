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
end)
