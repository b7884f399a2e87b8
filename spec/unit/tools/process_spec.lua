-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The second processes of spec/support/process.lua.
local process = require "spec.support.process"

after_each(process.clear)

describe("a second process", function()
  it("returns as many results as its code, also where some are nil", function()
    local other = process.start()
    for _, values in ipairs { "true, nil", "nil, false", "nil, nil", "nil, nil, 3, nil" } do
      local count = select("#", (values:gsub("[^,]", "")):byte(1, -1)) + 1
      assert.equal(count, select("#", other:run("return " .. values)), values)
    end
    assert.same({ nil, false }, { other:run "return nil, false" })
  end)
end)
