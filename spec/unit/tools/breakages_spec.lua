-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- A breakage whose patch does not apply shows nothing. `make prove-breakages` tells that, and is seldom run.
local process = require "spec.support.process"

describe("the patch of each breakage applies:", function()
  for path in process.shell("sh", "-c", "ls tools/*/breakages/*.patch"):gmatch "%S+" do
    it(path, function() process.shell("git", "apply", "--check", path) end)
  end
end)
