-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- amqp-lock when it is killed or stopped, and when its lock is lost: its command has ended before the next holder is
-- in. The next holder is a client that shares no code with the library.
local broker = require "spec.support.broker"
local command = require "spec.support.command"
local gate = require "spec.support.gate"
local kinds = require "spec.support.kinds"
local process = require "spec.support.process"
local proxy = require "spec.support.proxy"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"
local values = require "spec.support.programs.values"

local operated_it = broker.operated_it(it, pending)
local SECONDS = 60

local start = command.start_jobs

stage.tidy(command.clear)

-- The guard of a running amqp-lock: the child of that name.
local function guard_of(one)
  return until_true(function() -- the command may run before the guard has its name
    for pid in process.shell("pgrep", "-P", tostring(one.pid)):gmatch "%d+" do
      if process.contents("/proc/" .. pid .. "/comm") == "amqp-lock-guard\n" then return command.process(pid) end
    end
  end, SECONDS)
end

local function none_lives(jobs)
  for i, job in ipairs(jobs) do
    assert.is_false(job:runs(), "job " .. i .. " runs, and another client has the lock")
  end
end

-- Waits until another client can have the mutex; returns that client, which has it.
local function next_holder(name)
  local other = stage.client()
  until_true(function()
    local channel = other:channel()
    local had = channel:call { method = "queue.declare", queue = name .. "-mutex", exclusive = true, auto_delete = true,
      arguments = { ["x-queue-type"] = "classic", ["x-max-length"] = 0, ["x-overflow"] = "drop-head" } }
    return had ~= nil
  end, SECONDS)
  return other
end

-- Likewise, and checks, while that one has it, that no job is left.
local function next_is_alone(name, jobs)
  local other = next_holder(name)
  none_lives(jobs)
  other:close()
end

local SHELL = "echo job $$; sleep 600 & echo job $!; wait"
-- Tells when it gets TERM, and goes on.
local DEAF = "trap 'echo got TERM' TERM; echo job $$; while :; do sleep 0.1; done"

local function got_term(one) return one:output():find("got TERM", 1, true) ~= nil end

describe("the command of an amqp-lock that is killed", function()
  it("ends before the next holder is in, also if its processes have left its group and session, or are stopped",
    function()
      local name = gate.name()
      local one, jobs = start({}, 4, name, "sh", "-c", "echo job $$; timeout 600 sh -c 'echo job $$; sleep 600' &"
        .. " setsid sh -c 'echo job $$; exec sleep 600' & (setsid sh -c 'echo job $$; exec sleep 600' &); wait")
      for i = 1, 2 do
        jobs[i]:signal "STOP"
        jobs[i]:await_state "T"
      end
      one:signal "KILL"
      next_is_alone(name, jobs)
    end)

  it("gets KILL at once with --on-lost=kill", function()
    local name = gate.name()
    local one, jobs = start({}, 1, "--on-lost", "kill", "--grace", "9", name, "sh", "-c", DEAF)
    one:signal "KILL"
    next_is_alone(name, jobs)
    assert.is_false(got_term(one))
  end)

  it("goes on with --no-guard, and the lock is free", function()
    local name = gate.name()
    local one, jobs = start({}, 2, "--no-guard", name, "sh", "-c", SHELL)
    one:signal "KILL"
    gate.until_free("mutex", name)
    for _, job in ipairs(jobs) do assert.is_true(job:alive()) end
  end)

  it("does not keep a pipe open that it wrote to, while its guard ends the command", function()
    local name = gate.name()
    local line = "trap \"\" TERM; echo job $$; exec >/dev/null 2>&1; while :; do sleep 600; done"
    local one, jobs = start({ program = "sh" }, 1, "-c",
      ("%s/amqp-lock --heartbeat 600 --grace 600 %s -c '%s' | { cat; echo end of the pipe; }"):format(
        command.DIRECTORY, name, line))
    local parent = process.contents(("/proc/%d/stat"):format(jobs[1].pid)):match "^%d+ %b() %a (%d+)"
    command.process(parent):signal "KILL"
    one:await "end of the pipe\n"
    assert.is_true(jobs[1]:alive())
    assert.is_true(gate.held("mutex", name))
  end)
end)

describe("the command of an amqp-lock that is stopped", function()
  it("goes on if that is over soon", function()
    local one = start({ input = true }, 1, "--heartbeat", "10", "--grace", "1", gate.name(), "sh", "-c",
      "echo job $$; read line; echo went on")
    one:signal "STOP"
    one.process:await_state "T"
    one:signal "CONT"
    one:write "go\n"
    assert.same({ "exit", 0 }, { one:wait() })
    assert.matches("went on\n$", one:output())
  end)

  -- As `docker pause` does, or a suspended machine. The next holder is in when they go on, and no grace is left.
  it("together with its guard and its command gets KILL at once when they go on, whichever goes on first", function()
    local all = {}
    for i, order in ipairs { { "job", "guard", "tool" }, { "tool", "guard", "job" }, { "guard", "job" },
      { "tool", "job" }, { "job", "tool", no_guard = true } } do
      local words = order.no_guard and { "--no-guard", "--grace=0.04" } or { "--grace=2" }
      local its = { order = order, name = gate.name() }
      for _, word in ipairs { "--heartbeat=2", its.name, "sh", "-c", DEAF } do table.insert(words, word) end
      local one, jobs = start({}, 1, values.unpack(words))
      its.one, its.processes = one, { job = jobs[1], tool = one.process, guard = not order.no_guard and guard_of(one)
        or nil }
      all[i] = its
    end
    for _, its in ipairs(all) do
      for _, each in pairs(its.processes) do each:signal "STOP" end
      for _, each in pairs(its.processes) do each:await_state "T" end
    end
    for i, its in ipairs(all) do
      local other = next_holder(its.name)
      for _, who in ipairs(its.order) do its.processes[who]:signal "CONT" end
      its.processes.job:await_end(SECONDS)
      assert.is_false(got_term(its.one), i)
      other:close()
    end
  end)
end)

-- The next holder is the next consumer of its queue.
for kind, option in pairs { fast_mutex = "--close", quorum_mutex = "--quorum" } do
  for signal, what in pairs { KILL = "killed", STOP = "stopped" } do
    it(("the command of an amqp-lock that is %s ends before the next holder of a %s is in, also if it ignores TERM")
      :format(what, kind), function()
      if not kinds.all[kind] then return pending "from 4.3 on" end
      local name, channel = kinds.all[kind].name(), stage.client():channel()
      local one, jobs = start({}, 1, "--heartbeat=4", "--grace=2", "--fast", option, name, "sh", "-c", DEAF)
      assert(channel:call { method = "basic.qos", prefetch_count = 1 })
      assert(channel:call { method = "basic.consume", queue = name .. "-fastmutex" })
      one:signal(signal)
      assert(channel:await("basic.deliver", SECONDS))
      none_lives(jobs)
      assert.is_true(got_term(one))
    end)
  end
end

it("the command of an amqp-lock whose guard alone is killed goes on", function()
  local name = gate.name()
  local one, jobs = start({ input = true }, 1, name, "-c", "echo job $$; read line; echo went on; exit 5")
  guard_of(one):signal "KILL"
  one:await "amqp%-lock: the guard was killed: [^\n]*\n"
  assert.is_true(jobs[1]:alive() and gate.held("mutex", name))
  one:write "go\n"
  assert.same({ "exit", 5 }, { one:wait() })
  assert.matches("\nwent on\n$", one:output())
end)

describe("the command of an amqp-lock whose network is silent, or which is stopped,", function()
  it("ends before the broker lets the next holder in, also if it ignores TERM, or has no guard", function()
    local all = {}
    for i, its in ipairs { { silent = "up", job = DEAF }, { silent = "down", job = SHELL, jobs = 2 },
      { silent = "up", job = DEAF, no_guard = true }, { job = SHELL, jobs = 2 } } do
      its.name, its.proxy = gate.name(), proxy.start()
      its.one, its.jobs = start({ env = { AMQP_URL = its.proxy.url } }, its.jobs or 1, "--heartbeat=4", "--grace=2",
        its.name, "-c", its.job)
      if its.no_guard then
        guard_of(its.one):signal "KILL"
        its.one:await "amqp%-lock: the guard was killed: "
      end
      all[i] = its
    end
    for _, its in ipairs(all) do
      if its.silent then its.proxy:switch(its.silent, "drop") else its.one:signal "STOP" end
    end
    for _, its in ipairs(all) do
      next_is_alone(its.name, its.jobs)
      its.one:signal "CONT"
      assert.same({ "exit", 76 }, { its.one:wait(SECONDS) })
      -- One that was stopped says "lost" if the broker, on a busy machine, has closed the connection by then.
      local output = its.one:output()
      assert.is_truthy(output:find(its.no_guard and "the lock may be lost before the command has ended"
        or "suspect: mutex ", 1, true) or not its.silent and output:find("lost: mutex ", 1, true), output)
      assert.equal(its.job == DEAF, got_term(its.one))
    end
  end)
end)

describe("the command of an amqp-lock whose lock is lost", function()
  operated_it("gets TERM when the connection is closed, with all its processes, and the reason is told", function()
    local name = gate.name()
    local one, jobs = start({}, 3, "--name", name, name, "sh", "-c",
      "setsid sh -c 'echo job $$; exec sleep 600' & " .. SHELL)
    broker.suite:close_connection(name .. " holder")
    assert.same({ "exit", 76 }, { one:wait(SECONDS) })
    none_lives(jobs)
    assert.matches('amqp%-lock: lost: mutex ".-": .*the operator wants it.*; the command is asked to end\n',
      one:output())
  end)

  for what, row in pairs {
    ["gets TERM, and KILL after the grace"] = { "--grace=2", "--lost-exit-code=9", DEAF, 9, got_term },
    ["gets KILL at once with --on-lost=kill"] = { "--on-lost=kill", "--grace=9", DEAF, 76,
      function(one) return not got_term(one) end },
    ["goes on with --on-lost=ignore, and its status counts"] = { "--on-lost=ignore", "-v",
      "echo job $$; until [ -e \"$0\" ]; do sleep 0.1; done; exit 5", 5,
      function(one) return one:output():find 'lost: mutex ".-": .*; the command goes on\n' end },
  } do
    operated_it(what .. " when the queue is deleted", function()
      local name, file = gate.name(), command.place() .. "/end"
      local one, jobs = start({}, 1, row[1], row[2], name, "sh", "-c", row[3], file)
      broker.suite:delete_queue(name .. "-mutex")
      if row[4] == 5 then one:await "the command goes on\n" end
      process.write(file, "")
      assert.same({ "exit", row[4] }, { one:wait(SECONDS) })
      assert.is_truthy(row[5](one), one:output())
      none_lives(jobs)
    end)
  end

  operated_it("is named on standard output with --hold", function()
    local name = gate.name()
    local one = command.start({ input = true }, "--hold", name)
    one:await "held %x+\n"
    broker.suite:delete_queue(name .. "-mutex")
    assert.same({ "exit", 76 }, { one:wait(SECONDS) })
    assert.matches("\nlost lost: ", one:output())
  end)
end)

it("a command that ends by itself leaves behind what it wants", function()
  local name = gate.name()
  local one, jobs = start({}, 1, name, "sh", "-c", "setsid sh -c 'echo job $$; exec sleep 600' & sleep 0.3; exit 4")
  assert.same({ "exit", 4 }, { one:wait() })
  assert.is_true(not gate.held("mutex", name) and jobs[1]:alive())
end)

-- Profiles of containers deny calls with EPERM, old kernels with ENOSYS. Commands have outlived their locks by that.
describe("with a system call that is denied,", function()
  local deny

  setup(function()
    deny = process.directory() .. "/deny"
    process.shell("sh", "-c", '${CC:-cc} -D_GNU_SOURCE -o "$1" spec/support/programs/deny.c', "cc", deny)
  end)
  teardown(function() process.shell("rm", "-r", deny:match ".*/") end)

  local JOBS = "trap 'echo got USR1' USR1; echo job $$; setsid sh -c 'echo job $$; exec sleep 600' &"
    .. " while :; do sleep 600 & wait $!; done"

  local function start_denied(row, heartbeat, job)
    local name, how = gate.name(), row:match "^%S+"
    local one, jobs = start({ program = deny }, 2, how, row:match " (.*)", "--", command.DIRECTORY .. "/amqp-lock",
      "--heartbeat=" .. heartbeat, "--grace=1", name, "sh", "-c", job or JOBS)
    return { name = name, one = one, jobs = jobs }
  end

  for _, row in ipairs { "EPERM pidfd_send_signal", "EPERM timerfd_create", "ENOSYS timerfd_settime",
    "EPERM setpgid" } do
    operated_it(row .. ", it passes signals on, and ends its command when it is killed, stopped, or loses its lock",
      function()
        local stopped, one = start_denied(row, 2), start_denied(row, 10)
        local killed, lost = start_denied(row, 10), start_denied(row, 10)
        stopped.one:signal "STOP"
        one.one:signal "USR1"
        one.one:await "got USR1\n"
        one.one:signal "TERM"
        assert.same({ "exit", 143 }, { one.one:wait() }, one.one:output())
        for _, job in ipairs(one.jobs) do job:await_end() end
        killed.one:signal "KILL"
        next_is_alone(killed.name, killed.jobs)
        broker.suite:delete_queue(lost.name .. "-mutex")
        assert.same({ "exit", 76 }, { lost.one:wait() }, lost.one:output())
        none_lives(lost.jobs)
        next_is_alone(stopped.name, stopped.jobs)
      end)
  end

  it("EPERM getdents64, it ends the group of a command whose first process has ended", function()
    local killed = start_denied("EPERM getdents64", 4,
      [[echo job $$; sh -c 'trap "" TERM; echo job $$; exec sleep 600' & wait]])
    killed.one:signal "KILL"
    next_is_alone(killed.name, killed.jobs)
  end)

  it("waitid, pipe2 or signalfd4, it does not run its command, and says so", function()
    for call, why in pairs { waitid = "start a process", pipe2 = "start a process", signalfd4 = "wait for signals" } do
      local output = command.ends({ program = deny }, 70, "EPERM", call, "--", command.DIRECTORY .. "/amqp-lock",
        gate.name(), "echo", "in")
      assert.matches("^amqp%-lock: cannot " .. why, output)
      assert.is_nil(output:find("\nin\n", 1, true))
    end
  end)
end)

-- The time since the broker's last answer is what the certainty of a permit is made of, and in a wait there is none.
it("the command of a permit that is had late in a wait is not ended at its start", function()
  local name = kinds.all.permit.name()
  local held = command.start({ input = true }, "--hold", "-P", name)
  held:await "held"
  local one = command.start({ fd = 7, input = true }, "-P", "--heartbeat=4", "--grace=3", "--status-fd=7", name, "-c",
    "echo in; read line; exit 5")
  until_true(function() -- what is granted from 4.7 to 7.8 s after the last answer is certain, but not for a grace
    local seconds = one:told():match '.*{"event":"waiting","seconds":([%d.e-]+)'
    return tonumber(seconds or 0) >= 4.8, one:told()
  end, SECONDS)
  held:close_input()
  one:await "in\n"
  one:write "go\n"
  assert.same({ "exit", 5 }, { one:wait() }, one:output())
end)

it("amqp-lock --wait-broker waits until a broker is there, also for a fast mutex", function()
  local between, all = proxy.shut(), {}
  for option, name in pairs { ["--close"] = gate.name(), ["--fast"] = kinds.all.fast_mutex.name() } do
    local one = command.start({ env = { AMQP_URL = between.url }, fd = 7 }, option, "--wait-broker", "--status-fd",
      "7", name, "echo", "in")
    table.insert(all, one)
    until_true(function() return one:told():find('^{"event":"waiting","seconds":[^\n]*unreachable'), one:told() end,
      SECONDS)
  end
  between:open()
  for _, one in ipairs(all) do
    assert.same({ "exit", 0 }, { one:wait(SECONDS) })
    assert.matches("in\n$", one:output())
  end
end)

it("a crowd of amqp-locks, of which every third is killed, never has two commands inside", function()
  local soaks = os.getenv "AMQPLOCKS_SOAK"
  local count, runs = soaks and 200 or 18, soaks and 999 or 36
  local crowd = command.start({ program = process.PYTHON }, "spec/support/programs/crowd.py",
    command.DIRECTORY .. "/amqp-lock", gate.name(), count, runs, command.place() .. "/witness")
  assert.same({ "exit", 0 }, { crowd:wait(soaks and 3600 or 600) })
  assert.matches(("overlaps 0, killed %d, ended %d\n"):format(runs / 3, runs - runs / 3), crowd:output(), 1, true)
end)
