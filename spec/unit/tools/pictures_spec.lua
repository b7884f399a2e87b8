-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The pictures of the documents, drawn from what the demo, the benchmark and the dashboard's run print, shortened.

local LOG = [[
   0.00  admin begins create 1
   0.02  admin ends create 1
   0.10  A waits
   0.20  A acquired 1
   0.30  B waits
   0.40  C waits
   1.00  admin begins add 1
   1.01  admin ends add 2
   1.10  B acquired 2
   2.00  admin kills A
   2.01  A ended 137
   2.04  C acquired 1
   4.00  B releases 2
   4.50  C releases 1
]]

local REPORT = [[
machine: 2 processors, a machine; Linux 6.1; load 0.5
software: Lua 5.4, RabbitMQ 3.10.8, rabbitmq-c 0.11.0

uncontended: acquire + release, ms
                                      median     quartiles       / mutex
mutex                                   4.00     3.42-4.00          1.00

16 wait, each holds it for 2 ms: from release until the next holds, ms
                                      median           p99      a second
mutex                                   0.00          9.29           160

a holder ends: until the next holds, ms; time to live, heartbeat: 10 s
                                     SIGKILL         worst       SIGSTOP
PostgreSQL, advisory lock            > 60000       > 60000       > 60000

summary                                                measured  quartiles    budget
]]

local ANSWERS = [[
seconds	3
happens	1.5	the broker stops
panel	Locks that are held	short
series	slot <b>
value	0	1
panel	Acquires, by result	ops
series	acquired
value	0	130
value	1	NaN
]]

-- A tool, what it reads, parts of what it draws, and a text that it refuses.
for name, case in pairs {
  picture = { LOG, { ">worker A<", ">1 added: 2 slots<", ">kill -9: worker C gets slot 1 within 0.05 s<" },
    LOG:gsub("B acquired 2", "B acquired 1") }, -- two held a slot at once
  comparison = { REPORT, { ">4 ms<", ">&lt; 0.01 ms<", ">&gt; 60 s<", ">PostgreSQL, advisory lock<" },
    REPORT:gsub("a holder ends.-\n\n", "") },
  dashboard = { ANSWERS, { ">Locks that are held<", ">slot &lt;b&gt;<", ">the broker stops<", ">150/s<" }, "oh\n" },
} do
  it(("tools/%s.lua draws what its input tells, and refuses one that is wrong"):format(name), function()
    local tool = require("tools." .. name)
    local function drawn(text) return tool.draw(tool.read(text:gmatch "([^\n]*)\n")) end
    local svg = drawn(case[1])
    assert.matches("^<svg.*</svg>\n?$", svg)
    for _, part in ipairs(case[2]) do assert.is_truthy(svg:find(part, 1, true), part .. svg) end
    assert.has_error(function() drawn(case[3]) end)
  end)
end
