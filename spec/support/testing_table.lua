-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

--- Runs the rows of testing_rows.lua as tests.
local assert = require "luassert"
local rows = require "spec.support.testing_rows"

--- `it_`: busted's it. `operated_it`: the same for rows that need an operator. `new_stage` returns what a row gets, but
-- say.
return function(it_, operated_it, new_stage)
  for _, row in ipairs(rows) do
    (row.expected.is_operated and operated_it or it_)(row.title, function()
      local said = {}
      local stage = new_stage()
      function stage.say(value) table.insert(said, tostring(value)) end
      row.run(stage)
      assert.equal(table.concat(row.expected, "\n"), table.concat(said, "\n"))
    end)
  end
end
