-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The inputs that the fuzzers of tools/fuzz have left behind, without a fuzzer. They reach everything that
-- the fuzzers have ever reached, and *.found are those that were findings once. The targets are built by the compiler
-- and with the sanitizers of this run.

describe("the corpus", function ()
  for _, name in ipairs{ "session", "session.found", "url", "url.found" } do
    it("is harmless: " .. name, function ()
      local path, target, inputs, output = "tools/fuzz/corpus/" .. name, name:match "^%a+", {}, {}
      for line in io.lines(path) do
        if not line:find "^#" then table.insert(inputs, line) end
      end
      local program = assert(os.getenv "AMQPLOCKS_REPLAY", "make has not started this run")
      local command = "grep -v '^#' %s | '%s%s' 2>&1; echo status $?"
      for line in io.popen(command:format(path, program, target)):lines() do table.insert(output, line) end
      local last = table.concat(output, "\n", math.max(1, #output - 30))
      assert.equal("status 0", output[#output], "the last number is the input's:\n" .. last)
      assert.equal(tostring(#inputs), output[#output - 1])
    end)
  end
end)
