-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- amqp-lock --restart: the command runs again when its lock was lost, and is acquired again. Another client holds the
-- lock in between, and sees that nothing of the command is left.
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local command = require "spec.support.command"
local gate = require "spec.support.gate"
local line = require "spec.support.line"
local process = require "spec.support.process"
local proxy = require "spec.support.proxy"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)
local SECONDS = 60

stage.tidy(command.clear)

-- Starts one whose command prints "job PID"; returns it and that process.
local function start(...)
  local one = command.start({ fd = 7 }, "--restart", "--status-fd", "7", ...)
  return one, command.process(one:await("job (%d+)\n", SECONDS))
end

-- Waits until so many commands have begun.
local function await_jobs(one, count)
  until_true(function() return select(2, one:output():gsub("job %d+\n", "")) == count, one:output() end, SECONDS)
end

local JOB = "echo job $$; exec sleep 600"

-- The same, but at first it outlives TERM until `lose` is done: amqp-lock could acquire again before the waiter does.
local function unhurried()
  local is_lost = "[ -e " .. command.place() .. "/lost ]"
  return is_lost .. " && last='exec sleep 600' || trap '' TERM; echo job $$; " ..
    "until " .. is_lost .. "; do sleep 0.1; done; $last"
end

-- Another process waits for the lock, which is then lost; returns that process, which has it.
local function lose(kind, name)
  local other = line.join(gate.process(kind, name))
  gate.until_rung(kind, name)
  broker.suite:delete_queue(gate.queue(kind, name))
  gate.served(other)
  process.write(command.place() .. "/lost", "")
  return other
end

describe("amqp-lock --restart", function()
  operated_it("runs its command again when the next holder has released, and nothing of it lives meanwhile", function()
    local name = gate.name()
    stage.undo(function() stage.delete(name .. "-rwfence") end)
    local one, job = start("--heartbeat=60", "--grace=60", "-W", "--fenced", name, "-c",
      "echo ticket $AMQP_LOCK_TICKET fence $AMQP_LOCK_FENCE $AMQP_LOCK_OUTER_TICKETS .; " .. unhurried())
    local waiter = lose("write", name)
    until_true(function() return not job:alive() end, SECONDS)
    assert.is_nil(one:status())
    await_jobs(one, 1)
    assert.is_true(waiter:run("return lock:verify() and lock:release()"))
    await_jobs(one, 2)
    assert.is_true(gate.held("write", name))
    one:signal "TERM"
    assert.same({ "exit", 143 }, { one:wait() }, one:output())
    assert.is_false(gate.held("write", name))
    local first, fence, second, larger = one:output():match(
      "ticket (%x+) fence (%d+) %..*ticket (%x+) fence (%d+) %.")
    assert.is_true(first ~= second and tonumber(fence) < tonumber(larger), one:output())
    local events = {}
    for event in one:told():gmatch '{"event":"([%l_]+)"' do table.insert(events, event) end
    assert.matches("acquired started lost ended .*acquired started ended released$", table.concat(events, " "))
  end)

  operated_it("goes on when the broker closes its connection, and waits for a broker that is away", function()
    local between, name, connection = proxy.start(), gate.name(), client.unique "restarted"
    local one, job = start("--url", between.url, "--name", connection, name, "-c", JOB)
    broker.suite:close_connection(connection .. " holder")
    await_jobs(one, 2)
    assert.is_false(job:runs())
    between:refuse(true)
    between:cut_all()
    until_true(function() return one:told():find '"waiting","seconds":[^\n]*unreachable', one:told() end, SECONDS)
    between:refuse(false)
    await_jobs(one, 3)
    one:signal "TERM"
    assert.same({ "exit", 143 }, { one:wait(SECONDS) }, one:output())
  end)

  it("ends as its command does, if that ends by itself", function()
    local name = gate.name()
    assert.equal("once\n", command.ends({}, 3, "--restart", name, "-c", "echo once; exit 3"))
    command.ends({}, 75, "--restart", "-n", gate.holder("mutex", name).name, "true")
  end)

  operated_it("does not begin again when a signal has asked it to end, before or while it waits again", function()
    local name = gate.name()
    local one = start("--grace=2", name, "-c", "trap '' TERM; echo job $$; while :; do sleep 0.1; done")
    one:signal "TERM"
    broker.suite:delete_queue(gate.queue("mutex", name))
    assert.same({ "exit", 76 }, { one:wait(SECONDS) }, one:output())
    local again = start("--heartbeat=60", "--grace=60", name, "-c", unhurried())
    local other = lose("mutex", name)
    until_true(function() return again:told():find('"event":"lost".*"event":"waiting"'), again:told() end, SECONDS)
    again:signal "TERM"
    assert.same({ "signal", 15 }, { again:wait() }, again:output())
    assert.matches('{"event":"gave_up","signal":15}\n$', again:told())
    assert.is_true(other:run("return lock:verify()"))
  end)

  operated_it("gives up when it has not had the lock again within its time", function()
    local name = gate.name()
    local one = start("--heartbeat=60", "--grace=60", "-w", "3", name, "-c", unhurried())
    lose("mutex", name)
    assert.same({ "exit", 75 }, { one:wait(SECONDS) }, one:output())
  end)
end)

describe("the file of --url-file, when the password changes", function()
  -- A user whose URL stands in a file. `fill` replaces its text, `rotate` changes the password and then the file, and
  -- `close` ends the user's connections.
  local function user()
    local self = { path = command.place() .. "/url" }
    self.url, self.name = stage.user(".*", ".*", ".*")
    function self.fill(text)
      process.write(self.path .. ".new", text)
      assert(os.rename(self.path .. ".new", self.path))
    end
    function self.close() broker.suite:close_connections_of(self.name, "rotated") end
    function self.rotate()
      broker.suite:change_password(self.name, "another")
      self.fill((self.url:gsub(":password@", ":another@")))
      self.close()
    end
    self.fill(self.url)
    return self
  end

  operated_it("is read anew when the command begins again", function()
    local who, name = user(), gate.name()
    local one, job = start("--url-file", who.path, name, "-c", JOB)
    who.rotate()
    await_jobs(one, 2)
    assert.is_false(job:runs())
    assert.is_true(gate.held("mutex", name))
    one:signal "TERM"
    assert.same({ "exit", 143 }, { one:wait() }, one:output())
  end)

  operated_it("is read anew while amqp-lock waits, and its last good text is used where there is none", function()
    local who, name = user(), gate.name()
    local held = gate.occupy("mutex", name)
    local one = command.start({}, "-v", "--wait-broker", "--poll=0.2", "--name", who.name, "--url-file", who.path, name,
      "echo", "in")
    one:await "waiting: "
    for text, why in pairs {
      [""] = "the file is empty", ["amqp://:x"] = "a port [^\n]+", missing = "No such file or directory",
      [who.url .. "/other"] = "it names another virtual host, which has other locks", pipe = "it is no file any more",
    } do
      who.fill(text)
      if text == "missing" or text == "pipe" then os.remove(who.path) end
      if text == "pipe" then process.shell("mkfifo", who.path) end
      until_true(function() -- it may be about to connect, with nothing to be closed yet
        who.close()
        local output = one:output()
        return output:find("%-%-url%-file [^\n]*/url: " .. why .. "; the URL from before is used\n"), output
      end, SECONDS)
    end
    for _, link in ipairs { " holder", " prober" } do stage.until_connected(who.name .. link, 1) end
    who.rotate()
    held:release()
    assert.same({ "exit", 0 }, { one:wait(SECONDS) }, one:output())
    assert.matches("\nin\n", one:output(), 1, true)
  end)

  operated_it("is read anew by amqp-lock-admin watch", function()
    local who, name = user(), stage.semaphore(1)
    local admin = command.DIRECTORY .. "/amqp-lock-admin"
    local one = command.start({ program = admin }, "watch", "--url-file", who.path, name)
    one:await(": 1 slot, 0 held\n")
    who.rotate()
    local lock = stage.take(stage.connect():semaphore(name))
    one:await(": 1 slot, 1 held: 1\n", SECONDS)
    assert(lock:release())
  end)

  operated_it("is read once if it is a pipe", function()
    assert.equal("in\n", command.ends({ program = "bash" }, 0, "-c", '"$1" --url-file <(cat "$2") "$3" echo in', "bash",
      command.DIRECTORY .. "/amqp-lock", user().path, gate.name()))
  end)
end)
