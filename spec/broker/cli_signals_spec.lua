-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- amqp-lock and signals: while it waits, while its command runs, in terminals, and as process 1.
local command = require "spec.support.command"
local gate = require "spec.support.gate"
local process = require "spec.support.process"
local proxy = require "spec.support.proxy"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local SECONDS = 60
local AMQP_LOCK = command.DIRECTORY .. "/amqp-lock"

stage.tidy(command.clear)

-- The process group of a process.
local function group(pid)
  return tonumber(process.contents(("/proc/%d/stat"):format(pid)):match "^.*%) %a %d+ (%d+)")
end

-- A command for a shell that prints "job PID" and its traps, until the file exists.
local function traps(signals, file)
  local lines = { "n=0" }
  for _, signal in ipairs(signals) do
    table.insert(lines, ("trap 'n=$((n+1)); echo got %s $n' %s"):format(signal, signal))
  end
  table.insert(lines, ("echo job $$; until [ -e '%s' ]; do sleep 0.1; done; echo total $n"):format(file))
  return table.concat(lines, "; ")
end

describe("amqp-lock that waits", function()
  it("dies of TERM, INT, HUP and QUIT, and leaves nothing", function()
    local name = gate.name()
    local held = gate.occupy("mutex", name)
    for signal, number in pairs { TERM = 15, INT = 2, HUP = 1, QUIT = 3 } do
      local one = command.start({ fd = 7 }, "-v", "--status-fd", "7", name, "true")
      one:await "waiting: "
      one:signal(signal)
      assert.same({ "signal", number }, { one:wait() })
      assert.matches('{"event":"gave_up","signal":' .. number .. "}\n$", one:told())
    end
    held:release()
    assert.is_false(gate.held("mutex", name))
  end)

  it("dies of them also while it connects to a broker that does not answer", function()
    local name, between = gate.name(), proxy.start()
    between:switch("down", "drop", "new")
    local one = command.start({ env = { AMQP_URL = between.url } }, "-w", "600", "--wait-broker", name, "true")
    until_true(function() return between:count() > 0 end, SECONDS)
    one:signal "TERM"
    assert.same({ "signal", 15 }, { one:wait() })
  end)

  it("dies of TERM also if nobody reads what --status-fd tells, and the pipe is full", function()
    local name = gate.name()
    gate.occupy("mutex", name)
    local one = command.start({ program = "sh" }, "-c", [[{ sh -c 'echo job $PPID >&2'; head -c 65536 /dev/zero
      exec "$1" -v --status-fd 3 "$2" true 3>&1 >&2; } | sleep 600]], "sh", AMQP_LOCK, name)
    local tool = command.process((one:await "job (%d+)\n"))
    one:await "waiting for 1 s"
    tool:signal "TERM"
    tool:await_end()
  end)

  it("drops those that are for its command, which does not run yet, and those that it was told to ignore", function()
    local name = gate.name()
    local held = gate.occupy("mutex", name)
    local one = command.start({ ignore = { "HUP", "INT" } }, "-v", "--poll", "0.2", name, "echo", "in")
    one:await "waiting: "
    for _, signal in ipairs { "USR1", "USR2", "ALRM", "WINCH", "HUP", "INT" } do one:signal(signal) end
    held:release()
    assert.same({ "exit", 0 }, { one:wait() }, one:output())
    assert.matches("in\n", one:output(), 1, true)
  end)

  it("drops them also while it waits for the URL, which a pipe brings", function()
    local path = command.place() .. "/pipe"
    assert(os.execute("mkfifo '" .. path .. "'"))
    local one = command.start({}, "--url-file", path, gate.name(), "echo", "in")
    local pipe = assert(io.open(path, "w")) -- when it has opened the other end
    until_true(function() return one.process:state() == "S" end, SECONDS)
    for _, signal in ipairs { "USR1", "WINCH" } do one:signal(signal) end
    assert(pipe:write(os.getenv "AMQP_URL", "\n"))
    pipe:close()
    assert.same({ "exit", 0 }, { one:wait() }, one:output())
  end)
end)

describe("amqp-lock whose command runs", function()
  it("passes TERM, HUP, INT, QUIT, USR1, USR2, ALRM and WINCH on, and stays until the command has ended", function()
    local name, file = gate.name(), command.place() .. "/end"
    local all = { "TERM", "HUP", "INT", "QUIT", "USR1", "USR2", "ALRM", "WINCH" }
    local one = command.start({}, name, "-c", traps(all, file))
    one:await "job %d+\n"
    for i, signal in ipairs(all) do
      one:signal(signal)
      one:await(("got %s %d\n"):format(signal, i))
    end
    assert.is_true(gate.held("mutex", name))
    process.write(file, "")
    assert.same({ "exit", 0 }, { one:wait() })
    assert.matches("total 8\n$", one:output())
  end)

  it("passes TERM to all processes of the command, also outside of its group, and to stopped ones", function()
    local name = gate.name()
    local one, jobs = command.start_jobs({}, 5, name, "-c", "timeout 600 sh -c 'echo job $$; sleep 600' &"
      .. " setsid sh -c 'echo job $$; exec sleep 600' & (setsid sh -c 'echo job $$; exec sleep 600' &);"
      .. " sh -c 'echo job $$; kill -STOP $$; sleep 600' & echo job $$; wait")
    until_true(function()
      for _, job in ipairs(jobs) do if job:state() == "T" then return true end end
    end, SECONDS)
    one:signal "TERM"
    assert.same({ "exit", 128 + 15 }, { one:wait() })
    for _, job in ipairs(jobs) do job:await_end() end
  end)

  it("gives the command a process group of its own, without a terminal, but with --foreground", function()
    local job = "echo job $$; read line"
    local pid = command.start({ input = true }, gate.name(), "-c", job):await "job (%d+)\n"
    assert.equal(tonumber(pid), group(pid))
    local one = command.start({ input = true }, "--foreground", gate.name(), "-c", job)
    assert.equal(group(one.pid), group(one:await "job (%d+)\n"))
  end)
end)

describe("amqp-lock in a terminal", function()
  it("dies of ^C, as its command does", function()
    local name = gate.name()
    local one = command.start({ pty = true }, name, "-c", "echo job $$; exec sleep 600")
    local job = command.process((one:await "job (%d+)\r\n"))
    assert.equal(group(one.pid), group(job.pid))
    until_true(function() return process.contents(("/proc/%d/comm"):format(job.pid)) == "sleep\n" end, SECONDS)
    one:write "\3"
    assert.same({ "signal", 2 }, { one:wait() })
    assert.is_false(job:runs())
    assert.is_false(gate.held("mutex", name))
  end)

  it("sends the command no second INT and QUIT, and passes on a signal that is sent to it alone", function()
    local name, file = gate.name(), command.place() .. "/end"
    local one = command.start({ pty = true }, name, "-c", traps({ "INT", "QUIT", "TERM" }, file))
    one:await "job %d+"
    one:write "\3"
    one:await "got INT 1"
    one:write "\28"
    one:await "got QUIT 2"
    one:signal "TERM"
    one:await "got TERM 3"
    process.write(file, "")
    assert.same({ "exit", 0 }, { one:wait() })
    assert.matches("total 3\r?\n$", one:output())
  end)

  describe("with a shell that has job control", function()
    local function shell()
      local one = command.start({ pty = true, program = "bash", env = { PS1 = "ready>", HISTFILE = false } },
        "--norc", "--noprofile", "-i")
      one:await "ready>"
      return one
    end

    it("stops by ^Z, or as it reads in the background, and goes on by fg, with its command", function()
      for how, stop in pairs { [""] = "\26", ["--foreground"] = false } do
        local name, one = gate.name(), shell()
        one:write(("%s %s %s sh -c 'echo job $$; read line; echo \"line:\" $line' %s\n"):format(AMQP_LOCK, how, name,
          stop and "" or "&"))
        local job = command.process((one:await "job (%d+)\r\n"))
        if stop then one:write(stop) end
        job:await_state "T"
        if stop then one:await "Stopped" end
        one:write "fg\n"
        until_true(function() return job:state() ~= "T" end, SECONDS)
        one:write "text\n"
        one:await "line: text\r\n.*ready>" -- the prompt behind the job, which has released then
        assert.is_false(gate.held("mutex", name))
      end
    end)

    it("is a part of pipelines", function()
      local one = shell()
      one:write(("echo through | %s %s cat | sed s/^/pipe:/; echo \"all:\" ${PIPESTATUS[*]}\n"):format(AMQP_LOCK,
        gate.name()))
      one:await "pipe:through\r\n"
      one:await "all: 0"
    end)

    it("in the background its command has its own group, and kill reaches it", function()
      local name, one = gate.name(), shell()
      one:write(("%s %s sh -c 'echo job $$; exec sleep 600' &\n"):format(AMQP_LOCK, name))
      local pid = one:await "job (%d+)\r\n"
      assert.equal(tonumber(pid), group(pid))
      local job = command.process(pid)
      one:write "kill %1; wait; echo \"ended:\"\n"
      one:await "ended:\r\n"
      assert.is_false(job:runs())
      assert.is_false(gate.held("mutex", name))
    end)
  end)
end)

local can_unshare = pcall(process.shell, "unshare", "--pid", "--fork", "--mount-proc", "true")

describe("amqp-lock as process 1", function()
  (can_unshare and it or pending)("reaps orphans, passes on TERM and the status, gives up a wait at TERM", function()
    local function start(...)
      return command.start({ program = "unshare" }, "--pid", "--fork", "--mount-proc", "--kill-child", AMQP_LOCK, ...)
    end
    -- Seen from outside: amqp-lock is the only child of unshare.
    local function terminate(one)
      command.process(process.shell("pgrep", "-P", tostring(one.pid)):match "%d+"):signal "TERM"
    end

    local name, file = gate.name(), command.place() .. "/end"
    local one = start(name, "-c", [[
      for i in 1 2 3 4 5; do sh -c 'sleep 0 & exit' ; done
      sleep 0.2
      until ! grep -qs '^State:.Z' /proc/[0-9]*/status; do sleep 0.1; done; ]] .. traps({ "TERM" }, file) .. "; exit 5")
    one:await "job %d+\n"
    local waiting = start("-v", name, "true")
    waiting:await "waiting: "
    terminate(waiting)
    assert.same({ "exit", 128 + 15 }, { waiting:wait() })
    terminate(one)
    one:await "got TERM 1\n"
    process.write(file, "")
    assert.same({ "exit", 5 }, { one:wait() })
  end)
end)
