-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Runs every command line of docs/operators.md. The programs that the page supposes are scripts, which write down how
-- they were called, and which lock they had. Units are read by a program that knows them.
local client = require "spec.support.client"
local command = require "spec.support.command"
local process = require "spec.support.process"
local stage = require "spec.support.stage"

local PAGE = assert(process.contents "docs/operators.md")
local PROGRAMS = { "report", "migrate", "serve", "integration-tests", "deploy", "pg_dump" }
local SCRIPT = [[
#!/bin/sh
echo "${0##*/} $* $AMQP_LOCK_NAME $AMQP_LOCK_KIND fence=$AMQP_LOCK_FENCE" >>CALLS
[ "${0##*/}" = serve ] || exit 0
trap 'echo ended >>CALLS; exit 0' TERM
echo serving
while :; do /bin/sleep 1 & wait $!; done
]]

-- The page ---------------------------------------------------------------------------------------------------------

-- The code blocks of one language, in order.
local function blocks(language)
  local list = {}
  for text in PAGE:gmatch("\n```" .. language .. "\n(.-\n)```\n") do table.insert(list, text) end
  return list
end

-- The files that blocks of one language hold: their first line is a comment with the name.
local function files(language)
  local list = {}
  for _, text in ipairs(blocks(language)) do
    local path = assert(text:match "^# (%S+)\n", "a file without a name: " .. text)
    table.insert(list, { name = path:match "[^/]+$", text = text })
  end
  return list
end

local function lines_of(list, pattern)
  local lines = {}
  for _, text in ipairs(list) do
    for line in text:gmatch "[^\n]+" do table.insert(lines, line:match(pattern)) end
  end
  return lines
end

local LINES = {
  sh = lines_of(blocks "sh", "^%S.*$"),
  crontab = lines_of(blocks "crontab", "^[%d*]+ [%d*]+ [%d*]+ [%d*]+ [%d*]+ (.*)$"),
  unit = lines_of(blocks "ini", "^ExecStart=(.*)$"),
  yaml = lines_of(blocks "yaml", '^ +command: %[("?amqp%-lock.*)%]$'),
}
for i, line in ipairs(LINES.yaml) do LINES.yaml[i] = line:gsub('[",]', "") end

-- What stands before a line for the shell.
local BEFORE = { unit = "set -a; . /etc/amqp-lock/environment; exec ", yaml = "exec " }

-- The place ----------------------------------------------------------------------------------------------------------

local place

-- A directory with the programs, the command and the files with the URL.
local function prepare()
  place = command.place()
  process.shell("mkdir", "-p", place .. "/bin", place .. "/backup", place .. "/etc")
  for _, name in ipairs(PROGRAMS) do
    process.write(place .. "/bin/" .. name, (SCRIPT:gsub("CALLS", place .. "/calls")))
    process.shell("chmod", "755", place .. "/bin/" .. name)
  end
  local program = process.shell("realpath", command.DIRECTORY .. "/amqp-lock"):match "[^\n]+"
  process.shell("ln", "-s", program, place .. "/bin/")
  local url = os.getenv "AMQP_URL"
  process.write(place .. "/etc/url", url .. "\n")
  process.write(place .. "/etc/environment", "AMQP_URL=" .. url .. "\n")
  process.write(place .. "/calls", "")
end

-- A text of the page, with the paths of the place, and a shorter time.
local function here(text)
  return (text:gsub("/usr/local/bin/", place .. "/bin/"):gsub("/etc/amqp%-lock/", place .. "/etc/")
    :gsub("/srv/backup/", place .. "/backup/"):gsub("/tmp/held", place .. "/held")
    :gsub("%-%-at%-least 60", "--at-least 0.1"))
end

local function calls() return process.contents(place .. "/calls") end

local function environment() return { PATH = place .. "/bin:/usr/bin:/bin" } end

-- The names of the locks in a line: mutexes unless there is an option for another kind.
local function undo(line)
  for name in line:gmatch "[%l]+%-[%l]+" do
    for _, suffix in ipairs{ "-mutexbell", "-rwbell", "-mutexfence", "-bell", "-1-A", "-2-A" } do
      stage.undo(function() client.shared():delete(name .. suffix) end)
    end
  end
  for _, suffix in ipairs{ "-bell", "-1-A", "-2-A" } do
    stage.undo(function() client.shared():delete("staging" .. suffix) end)
  end
end

-- Runs a line by the shell; returns its status and output.
local function run(line)
  undo(line)
  local _, status, output = command.run({ program = "/bin/sh", env = environment() }, "-c", here(line))
  return status, output
end

-- The kind of lock that the options of a line ask for.
local function kind_of(line)
  return line:find " %-r " and "read" or line:find " %-W " and "write" or line:find " %-S " and "slot" or "mutex"
end

-- Each call was of a program of the line, with a lock of the line. Returns how many there were.
local function check_calls(line)
  local count = 0
  for call in calls():gmatch "[^\n]+" do
    local program, name, kind = call:match "^(%S+) .*%f[^ ](%S+) (%l+) fence=%d*$"
    assert.is_truthy(line:find(program, 1, true) and line:find(" " .. name .. " ", 1, true), call)
    assert.equal(kind_of(line), kind, call)
    count = count + 1
  end
  return count
end

local verify_it = pcall(process.shell, "systemd-analyze", "--version") and it or pending

-- Two of them: one serves, the other when that one has ended.
local function serve_in_turn(line)
  undo(line)
  local function start() return command.start({ program = "/bin/sh", env = environment() }, "-c", here(line)) end
  local one = start()
  one:await "serving"
  local two = start()
  assert.equal(line:find "held" ~= nil, process.contents(place .. "/held") ~= nil)
  one:signal "TERM"
  assert.same({ "exit", 0 }, { one:wait() })
  two:await "serving"
  two:signal "TERM"
  assert.same({ "exit", 0 }, { two:wait() })
  assert.equal("serve leader-serve ended serve leader-serve ended",
    (calls():gsub("serve +(leader%-serve) mutex fence=\n", "serve %1 "):gsub("ended\n", "ended "):gsub(" $", "")))
end

-- ---------------------------------------------------------------------------------------------------------------------

local cli_it = process.contents(command.DIRECTORY .. "/amqp-lock") and it or pending

describe("docs/operators.md", function()
  before_each(prepare)
  stage.tidy(command.clear)

  it("has lines of each kind", function()
    assert.same({ 12, 2, 2, 2 }, { #LINES.sh, #LINES.crontab, #LINES.unit, #LINES.yaml })
  end)

  for _, language in ipairs{ "sh", "crontab", "unit", "yaml" } do
    for _, line in ipairs(LINES[language]) do
      local is_leader = line:find("leader-serve", 1, true)
      cli_it(("has a line that works, in a block of %s: %s"):format(language, line), function()
        local whole = (BEFORE[language] or "") .. line
        if is_leader then return serve_in_turn(whole) end
        local status, output = run(whole)
        assert.equal(0, status, output)
        assert.equal("", output)
        assert.is_true(check_calls(line) > 0)
        if line:find("--fenced", 1, true) then
          local given, had = calls():match "^migrate %-%-fence (%d+) migrate%-shop mutex fence=(%d+)\n$"
          assert.equal(given, had, calls())
        end
      end)
    end
  end

  cli_it("has crontabs in which a machine that does not get the lock is silent", function()
    stage.take(stage.connect():mutex "nightly-report", { timeout = 60 })
    for _, line in ipairs(LINES.crontab) do assert.same({ 75, "" }, { run(line) }) end
    assert.equal("", calls())
  end)

  verify_it("has units of which systemd-analyze has nothing to say", function()
    local words = {}
    for _, file in ipairs(files "ini") do
      process.write(place .. "/" .. file.name, here(file.text))
      table.insert(words, place .. "/" .. file.name)
    end
    assert.equal(3, #words)
    assert.equal("", process.shell("systemd-analyze", "verify", (table.unpack or unpack)(words)))
  end)
end)
