-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- amqp-lock: which lock it takes, what its command gets, and how it ends.
local amqplocks = require "amqplocks"
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local command = require "spec.support.command"
local gate = require "spec.support.gate"
local kinds = require "spec.support.kinds"
local lines = require "spec.support.line"
local locale = require "spec.support.locale"
local process = require "spec.support.process"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)
local AMQP_LOCK = command.DIRECTORY .. "/amqp-lock"

stage.tidy(command.clear)

-- Runs amqp-lock, which must end with this status; returns its output.
local function ends(status, ...) return command.ends({}, status, ...) end

-- Calls destroy() of what `get` returns for a connection, at the end of the test.
local function destroy_later(get)
  stage.undo(function()
    local conn = assert(amqplocks.connect())
    get(conn):destroy()
    conn:close()
  end)
end

-- One that holds NAME with these options until it is told to release.
local function holder(...)
  local one = command.start({ input = true }, "--hold", ...)
  one:await "held (%x+)\n"
  return one
end

-- Asks the holder of a semaphore's first slot to release it.
local function revoke(name)
  local conn = stage.connect()
  until_true(function() return conn:admin(name):revoke(1) end)
end

describe("amqp-lock", function()
  describe("holds", function()
    for kind, option in pairs { mutex = "-o", read = "-r", write = "--write", fast_mutex = "--fast" } do
      it("a lock while its command runs, and not after it: " .. kind, function()
        local name = kinds.all[kind].name()
        local one = command.start({ input = true }, option, name, "sh", "-c", "echo in; read line; exit 7")
        one:await "in\n"
        assert.is_nil((kinds.rival(kind, name):try_acquire()))
        assert.equal(kind ~= "fast_mutex", gate.held(kind == "fast_mutex" and "mutex" or kind, name))
        one:ends_with_input(7)
        assert(assert(kinds.rival(kind, name):try_acquire()):release())
      end)
    end

    it("a slot, and creates the semaphore only if there is none", function()
      local name = stage.name()
      destroy_later(function(conn) return conn:admin(name) end)
      ends(66, "-S", name, "true")
      assert.equal("1\n", ends(0, "--slots", "2", name, "sh", "-c", "echo $AMQP_LOCK_SLOT"))
      local one = holder("-S", name)
      assert.is_true(stage.held(name, 1))
      assert.equal("2\n", ends(0, "-S", "--slots", "7", name, "sh", "-c", "echo $AMQP_LOCK_SLOT"))
      assert.equal(2, stage.connect():admin(name):slots())
      one:ends_with_input(0)
    end)

    it("a permit, and creates the token semaphore only if there is none", function()
      local name = client.unique "lock"
      local permits = stage.connect():token_semaphore(name)
      destroy_later(function(conn) return conn:token_semaphore(name) end)
      ends(66, "-P", name, "true")
      local one = holder("-P", "--permits", "1", name)
      assert.same({ 1, 0, 1 }, { permits:slots() })
      ends(75, "-n", "--permits", "5", name, "true")
      one:ends_with_input(0)
      assert.same({ 1, 1, 0 }, { permits:slots() })
    end)

    it("until its input ends, with --hold, or until a signal comes, of which it dies", function()
      local name = gate.name()
      local one = holder(name)
      one:write "a line does not end it\n"
      assert.is_true(gate.held("mutex", name))
      one:ends_with_input(0)
      assert.is_nil(one:output():find("lost", 1, true))
      one = holder("-n", name)
      one:signal "TERM"
      assert.same({ "signal", 15 }, { one:wait() })
      assert.is_false(gate.held("mutex", name))
    end)

    it("until a signal comes, with --hold, if its input cannot tell its end", function()
      local redirections, all = { "</dev/null", "<&-", "</etc/passwd", "</", "& wait" }, {}
      for i, redirection in ipairs(redirections) do
        all[i] = gate.name()
        command.start({ program = "sh" }, "-c", '"$1" --hold -v "$2" ' .. redirection, "sh", AMQP_LOCK, all[i])
          :await "held (%x+)\n"
      end
      for i, name in ipairs(all) do
        ends(75, "-n", name, "true") -- it has had the time to look at its input
        assert.is_true(gate.held("mutex", name), redirections[i])
      end
    end)

    it("nothing with --hold, if its input has ended before", function()
      local name = gate.name()
      for _, make in ipairs { "os.pipe()", "[s.detach() for s in __import__('socket').socketpair()]" } do
        local output = command.ends({ program = process.PYTHON }, 64, "-c", "import os, sys\n"
          .. "ours, other = " .. make .. "\nos.write(other, b'text'), os.close(other), os.dup2(ours, 0)\n"
          .. "os.execv(sys.argv[1], [sys.argv[1], '--hold', sys.argv[2]])", AMQP_LOCK, name)
        assert.matches("^amqp%-lock: option %-%-hold: [^\n]*/dev/null", output)
      end
      local held = gate.occupy("mutex", name)
      local one = command.start({ input = true }, "-v", "--poll=0.2", "--hold", name)
      one:await "waiting: "
      one:close_input()
      held:release()
      assert.same({ "exit", 64 }, { one:wait() }, one:output())
      assert.is_nil(one:output():find("\nheld", 1, true))
      assert.is_false(gate.held("mutex", name))
    end)
  end)

  describe("takes its turn", function()
    for kind, option in pairs { mutex = "-o", fast_mutex = "--fast" } do
      it("before waiters of a lower --priority, whenever they came, at a " .. kind, function()
        local name, order = kinds.all[kind].name(), command.place() .. "/order"
        local one, waiters = holder(option, name), {}
        for i, priority in ipairs { "0", "-32768", "32767" } do
          waiters[i] = command.start({}, option, "--poll", "600", "--priority=" .. priority, name, "-c",
            ("echo %s >>%s"):format(priority, order))
          until_true(function() -- the holder stands at the bell, too, from the first waiter on
            local queue = kind == "mutex" and gate.bell("mutex", name) or name .. "-fastmutex"
            return select(2, lines.at(name, queue)) == i + 1, waiters[i]:output()
          end, 60)
        end
        one:ends_with_input(0)
        for _, waiter in ipairs(waiters) do assert.same({ "exit", 0 }, { waiter:wait() }, waiter:output()) end
        assert.equal("32767\n0\n-32768\n", process.contents(order))
      end)
    end

    it("behind clients that wait already, with --fair", function()
      local name = gate.name()
      local world, one = stage.client():channel(), holder(name)
      gate.make_bell("mutex", name)
      -- a client that takes every notice, and not the lock
      assert(world:call { method = "basic.consume", queue = gate.bell("mutex", name),
        arguments = { ["x-priority"] = 9 } })
      one:close_input()
      assert(world:await "basic.deliver")
      assert.matches("^amqp%-lock: busy: ", ends(75, "-n", "--fair", name, "true"))
      ends(0, "-n", name, "true")
    end)

    it("at another slot than the first, with --random", function()
      local name = stage.name()
      destroy_later(function(conn) return conn:admin(name) end)
      ends(0, "--slots", "16", name, "true")
      local slot, runs = "1\n", 0
      while slot == "1\n" do
        runs = runs + 1
        assert.is_true(runs <= 12) -- one of 10^14 that pick from 16 at random comes so far
        slot = ends(0, "-S", "--random", name, "-c", "echo $AMQP_LOCK_SLOT")
      end
    end)
  end)

  describe("gives its command", function()
    it("the lock's name, kind, ticket and time, the time with a point under every locale", function()
      local name, before, env = gate.name(), os.time(), locale.environment()
      env.LC_ALL, env.AMQP_LOCK_SLOT, env.AMQP_LOCK_FENCE = "de_DE.UTF-8", "7", "8"
      local output = command.ends({ env = env }, 0, "-w", "20.5", name, "-c", "env | grep '^AMQP_LOCK_' | sort")
      local time, kind, named, ticket = output:match(
        "^AMQP_LOCK_ACQUIRED_AT=([%d.]+)\nAMQP_LOCK_KIND=(%l+)\nAMQP_LOCK_NAME=(%S+)\nAMQP_LOCK_TICKET=(%x+)\n$")
      assert.same({ "mutex", name, 16 }, { kind, named, #ticket }, output)
      assert.is_true(stage.is_since(before, tonumber(time)))
    end)

    it("a fencing token that grows, and a permit's id beside it, and neither without --fenced", function()
      local name = gate.name()
      destroy_later(function(conn) return conn:token_semaphore(name) end)
      local SHOW = 'echo "${AMQP_LOCK_FENCE-none} ${AMQP_LOCK_PERMIT-none}"'
      local first, permit = ends(0, "--permits", "1", "--quorum", "--fenced", name, "-c", SHOW):match("^(%d+) (%x+)\n$")
      local second, same = ends(0, "-P", "--quorum", "--fenced", name, "-c", SHOW):match("^(%d+) (%x+)\n$")
      assert.equal(permit, same)
      assert.is_true(tonumber(second) > tonumber(first))
      assert.equal("none none\n", (ends(0, "-P", "--quorum", name, "-c", SHOW)))
    end)

    it("its descriptors, and none of its own; closed standard descriptors as it got them", function()
      local one = command.start({ fd = 7 }, gate.name(), "-c", "ls /proc/self/fd; echo through >&7")
      assert.same({ "exit", 0 }, { one:wait() })
      assert.equal("through\n", one:told())
      assert.matches("^0\n1\n2\n3\n7\n$", one:output()) -- 3 is the directory that ls reads
      one = command.start({ fd = 7, close = { 0, 2 } }, gate.name(), "sh", "-c", [[
        for fd in 0 1 2; do [ -e /proc/$$/fd/$fd ] && echo $fd >&7; done; true]])
      assert.same({ "exit", 0 }, { one:wait() })
      assert.equal("1\n", one:told())
    end)

    it("the mask and the dispositions that it was started with", function()
      local name = gate.name()
      -- without the signals from 29 on, some of which belong to the C library
      local report = "sed -nE 's/^Sig(Blk|Ign):.*(.{7})$/\\1 \\2/p' /proc/self/status"
      for _, ignored in ipairs { {}, { "PIPE", "XFSZ", "TTIN", "TTOU", "USR1", "HUP", "ALRM", "IO" } } do
        local _, _, bare = command.run({ program = "sh", ignore = ignored }, "-c", report)
        assert.equal(bare, command.ends({ ignore = ignored }, 0, name, "-c", report))
      end
    end)
  end)

  describe("ends with", function()
    it("64 for what is wrong with its command line, and says what to use", function()
      local wrong = {
        "", "db", "-w db", "--timeout soon db true", "-E 256 db true", "--none db true", "--poll 0 db true",
        "-S -r db true", "-n -w 3 db true", "--grace 11 db true", "--fenced -P db true",
        "--heartbeat 2 --grace 3 db true",
        "--fast --quorum --grace 9 db true", "--on-lost cry db true", "--random db true", "--restart --hold db",
        "--restart --on-lost ignore db true", "--on-revoke NONE db true", "--status-fd 99 db true", "--hold db true",
        "--status-fd 1 db true", "-c true db", "amq.db true", "db -n true", "db -c", "db -c true x",
        "--url http://localhost db true", "--url-file /nonexistent db true", "--quorum db true", "--fast -S db true",
        "-P --fast db true", "--fast -r db true", "--fast -W db true", "--fast --slots 2 db true",
        "--permits 1 --fast db true", "--fast --random db true", "--name " .. ("x"):rep(200) .. " db true",
      }
      local path = command.place() .. "/lines"
      process.write(path, table.concat(wrong, "\n") .. "\n")
      assert.equal("", process.shell("sh", "-c", [[
        while IFS= read -r line; do
          told=$("$1" $line 2>&1 </dev/null) && status=0 || status=$?
          case "$status $told" in "64 amqp-lock: "*) ;; *) echo "$line: $status $told" ;; esac
        done <"$2"]], "sh", AMQP_LOCK, path))
      assert.matches("^amqp%-lock: ", ends(64, "", "true"))
      process.write(path, (" "):rep(16380) .. "amqp://localhost") -- not cut where the room for it ends
      assert.matches("longer than 16383 bytes", ends(64, "--url-file", path, "db", "true"), 1, true)
      assert.matches("-P --quorum --fenced", ends(64, "--fast", "--fenced", "db", "true"), 1, true)
      -- options that mean something else in flock
      for option, use in pairs { ["-s"] = "-r", ["-x"] = "-W", ["-e"] = "-W", ["-u"] = "COMMAND ends", ["-F"] = "leave",
        ["--shared"] = "-r", ["--exclusive"] = "-W", ["--unlock"] = "COMMAND ends", ["--no-fork"] = "leave" } do
        local output = ends(64, option, "db", "true")
        assert.is_truthy(output:find(option, 1, true) and output:find(use, 1, true), output)
      end
      assert.matches("--hold", ends(64, "-n", "9"), 1, true)
      assert.matches("did you mean --slots\n", ends(64, "--slost=3", "db", "true"), 1, true)
      assert.is_nil(ends(64, "--purple", "db", "true"):find "mean")
    end)

    it("64 in the command of an amqp-lock that holds the same lock, but not in what that has left behind", function()
      local name, late = gate.name(), command.place() .. "/late"
      assert.matches("^amqp%-lock: deadlock: ", ends(64, name, AMQP_LOCK, "-n", name, "true"))
      ends(64, "-r", name, "sh", "-c", '"$@" & wait $!', "sh", AMQP_LOCK, "--all", "read:other,write:" .. name, "true")
      for _, inner in ipairs { "-r", "-S" } do
        assert.is_nil(ends(inner == "-r" and 0 or 66, "-r", name, AMQP_LOCK, inner, name, "true"):find "deadlock")
      end
      ends(0, name, "sh", "-c", [[(outer=$PPID; exec >"$3" 2>&1; while kill -0 $outer; do sleep 0.05; done
        "$1" "$2" echo later) & ]], "sh", AMQP_LOCK, name, late)
      until_true(function() return (process.contents(late) or ""):find "\nlater\n" end, 60)
    end)

    it("69 without a broker, 77 for a wrong password; it waits only with --wait-broker", function()
      local told = ends(77, "--url", (os.getenv "AMQP_URL":gsub("//.-@", "//guest:wrong@")), "db", "true")
      assert.matches('^amqp%-lock: auth: [^\n]*user "guest", ', told)
      assert.matches("^amqp%-lock: unreachable: ", ends(69, "--url", "amqp://127.0.0.1:1", "db", "true"))
      ends(75, "--url", "amqp://127.0.0.1:1", "--wait-broker", "-w", "0.5", "db", "true")
    end)

    it("75, or -E, if the lock is not had in time, and is silent with -q", function()
      for words, option in pairs { mutex = "-o", ["fast mutex"] = "--fast" } do
        local name = kinds.all[words:gsub(" ", "_")].name()
        local one = holder(option, name)
        assert.matches('^amqp%-lock: busy: ' .. words .. ' "[^\n]*" is held\n$', ends(75, option, "-n", name, "true"))
        assert.matches("^amqp%-lock: timeout: " .. words, ends(75, option, "-w", "0.1", name, "true"))
        assert.equal("", ends(9, option, "-n", "-q", "-E", "9", name, "true"))
        one:ends_with_input(0)
      end
    end)

    it("78 if the name is another queue's, or a fast mutex's plain mutex is held", function()
      local name, fast = stage.name(), kinds.all.fast_mutex.name()
      assert(stage.client():channel():call { method = "queue.declare", queue = name .. "-mutex" })
      stage.undo(function() stage.delete(name .. "-mutex") end)
      ends(78, name, "true")
      holder(fast)
      assert.matches("in use as a plain mutex", ends(78, "--fast", fast, "true"), 1, true)
    end)

    it("126 and 127 for a command that cannot be run, or is not there, and releases", function()
      local name = gate.name()
      assert.matches("/etc/passwd: Permission denied", ends(126, name, "/etc/passwd"))
      assert.matches("^amqp%-lock: /nonexistent: No such file[^\n]*\n$", ends(127, name, "/nonexistent"))
      assert.matches("-c 'LINE'", ends(127, name, "echo a; echo b"), 1, true)
      assert.is_false(gate.held("mutex", name))
    end)

    it("128 and the signal that killed the command, except INT and QUIT, of which it dies itself", function()
      local name = gate.name()
      ends(137, name, "-c", "kill -9 $$")
      ends(143, name, "-c", "kill $$")
      for signal, number in pairs { INT = 2, QUIT = 3 } do
        local kind, got = command.run({}, name, "-c", "kill -" .. signal .. " $$")
        assert.same({ "signal", number }, { kind, got })
      end
      assert.is_false(gate.held("mutex", name))
    end)
  end)

  it("keeps the URL's password out of its command line, in all places or in a file, and of what it says", function()
    local name, path, url = gate.name(), command.place() .. "/url", os.getenv "AMQP_URL"
    local one = command.start({ input = true }, "--url=" .. url, "--url", url, "--hold", name)
    one:await "held"
    local line = assert(process.contents("/proc/" .. one.pid .. "/cmdline"))
    assert.is_nil(line:find("guest", 1, true) or line:find("127.0.0.1", 1, true))
    assert.is_truthy(line:find(name, 1, true))
    process.write(path, url .. "\nand another line\n")
    command.ends({ env = { AMQP_URL = "amqp://127.0.0.1:1" } }, 0, "--url-file", path, gate.name(), "true")
    for _, option in ipairs { "--url=", "--urx=" } do -- a wrong URL, and a wrong option
      local output = ends(64, option .. "amqp://guest:se@cret@localhost", "db", "true")
      assert.is_nil(output:find("cret", 1, true))
    end
  end)

  describe("tells", function()
    it("people with -v, and programs by lines of JSON, what it does", function()
      for kind, option in pairs { mutex = "-o", fast_mutex = "--fast" } do
        local name = kinds.all[kind].name()
        local one = holder(option, name)
        local waiter = command.start({ fd = 7 }, "-v", "--status-fd", "7", option, name, "-c",
          "echo $AMQP_LOCK_KIND; echo >&7 || exit 3")
        waiter:await "amqp%-lock: waiting: it is held\n"
        until_true(function() return waiter:told():find('{"event":"waiting"', 1, true), waiter:told() end)
        one:close_input()
        assert.same({ "exit", 3 }, { waiter:wait() }) -- it does not inherit the descriptor
        for _, told in ipairs { 'amqp%-lock: acquired ' .. kind:gsub("_", " ") .. ' "', "\n" .. kind .. "\n",
          'amqp%-lock: released "' } do
          assert.matches(told, waiter:output())
        end
        local told, events = waiter:told(), {}
        for line in told:gmatch "[^\n]+" do
          local event = assert(line:match '^{"event":"([%l_]+)".*"at":%d+%.%d%d%d}$', line)
          if events[#events] ~= event then table.insert(events, event) end
        end
        assert.equal("up waiting acquired started ended released", table.concat(events, " "))
        local lock = ('"name":"%s","kind":"%s","ticket":"%%x+"'):format(name:gsub("%p", "%%%0"), kind)
        assert.matches('{"event":"acquired",' .. lock .. ',"acquired_at":[%d.]+,"waited":[%d.]+,', told)
        assert.matches('{"event":"released",' .. lock .. ',"held":[%d.]+,', told)
        assert.matches('"event":"ended","status":3,', told, 1, true)
      end
    end)

    it("programs how many lines their pipe did not take, and people at the end", function()
      local output = command.ends({ program = process.PYTHON }, 0, "-c", [[
import os, subprocess, sys
reader, writer = os.pipe()
os.set_blocking(writer, False)
for size in 4096, 1:
    try:
        while True: os.write(writer, b"x" * size)
    except BlockingIOError: pass
one = subprocess.Popen(sys.argv[1:2] + ["--status-fd", str(writer), sys.argv[2], "-c", "echo in; read line; exit 3"],
    pass_fds=[writer], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
os.close(writer)
one.stdout.readline()
os.set_blocking(reader, False)
told = b""
try:
    while True: told += os.read(reader, 1 << 20)
except BlockingIOError: pass
one.communicate(b"\n")
told += os.read(reader, 1 << 20)
print(told.lstrip(b"x").decode(), "status", one.returncode, flush=True)
]], AMQP_LOCK, gate.name())
      -- The line "started" is dropped, or is the first one that tells: it is written beside what the command says.
      local dropped, told_once = output:match '"dropped":(%d+),', select(2, output:gsub('"dropped"', ""))
      assert.is_true((dropped == "3" or dropped == "4") and told_once == 1, output)
      assert.matches('{"event":"ended","status":3,[^\n]*}\n{"event":"released",', output)
      assert.matches("amqp-lock: --status-fd: " .. dropped .. " lines were dropped", output, 1, true)
      assert.matches(" status 3\n", output, 1, true)
    end)

    it("an empty AMQP_URL from an address: it is as if it was not set", function()
      local one = command.start({ env = { AMQP_URL = "" } }, "-n", gate.name(), "true")
      local how, status = one:wait()
      assert.is_true(how == "exit" and status ~= 64)
      assert.is_true(status ~= 69 or one:output():find "AMQP_URL is not set" ~= nil)
    end)

    it("people that its file for programs is full, and is not ended by that", function()
      local output = command.ends({ program = "bash" }, 0, "-c", [[exec 3>"$3"
        { (ulimit -f 0; exec "$1" --status-fd 3 "$2" sh -c 'exit 3'); echo "status $?"; } 2>&1 | cat]], "bash",
        AMQP_LOCK, gate.name(), command.place() .. "/file")
      assert.matches("^amqp%-lock: %-%-status%-fd: 6 lines were dropped[^\n]*\nstatus 3\n$", output)
    end)

    local OUTPUTS = { "amqp-lock --help", "amqp-lock --hold MUTEX", "amqp-lock-admin ls QUEUES",
      "amqp-lock-admin ls --json-output QUEUES", "amqp-lock-admin holders QUEUES", "amqp-lock-admin status SEMAPHORE",
      "amqp-lock-admin watch SEMAPHORE" }
    local UNWRITABLE = { ["ulimit -f 0"] = "File too large", ["exec >/dev/full"] = "No space left on device",
      ["exec >&-"] = "Bad file descriptor" }

    it("people that its output could not be written, as amqp-lock-admin does", function()
      local given = { MUTEX = gate.name(), SEMAPHORE = stage.semaphore(1), QUEUES = command.place() .. "/queues" }
      process.write(given.QUEUES, '[{"name":"db-mutex","arguments":{"x-amqplocks-holder":"who"}}]')
      for i, words in ipairs(OUTPUTS) do
        for limit, reason in pairs(i <= 2 and UNWRITABLE or { ["exec >/dev/full"] = "No space left on device" }) do
          local output = command.ends({ program = "bash" }, 0, "-c", ([[
            { (exec >"$1"; %s; exec %s/%s </dev/null); echo "status $?"; } 2>&1 | cat]]):format(limit,
            command.DIRECTORY, words:gsub("%u%u+", given)), "bash", command.place() .. "/file")
          local told = words:find "watch" and "" or ": " .. reason -- it has met that some time before it ends
          assert.equal(("%s: cannot write the output%s\nstatus 70\n"):format(words:match "^%S+", told), output,
            words .. ", " .. limit)
        end
      end
      assert.is_false(gate.held("mutex", given.MUTEX))
    end)

    it("programs of a failure, by a line of JSON, with a point in numbers under every locale", function()
      local name, env = gate.name(), locale.environment()
      holder(name)
      env.LC_ALL = "de_DE.UTF-8"
      local one = command.start({ fd = 7, env = env }, "--status-fd", "7", "-n", name, "true")
      assert.same({ "exit", 75 }, { one:wait() })
      assert.matches(('{"event":"failed","code":"busy","message":"busy: mutex [^\n]* is held","name":"%s",'
        .. '"waited":[%%d.]+,"at":[%%d.]+}\n$'):format(name:gsub("%p", "%%%0")), one:told())
    end)

    operated_it("programs of a revocation, by which the command goes on, and of a loss, by lines of JSON", function()
      local name = stage.semaphore(1)
      local one = command.start({ fd = 7 }, "--status-fd", "7", "-S", name, "-c", "echo in; sleep 600")
      one:await "in\n"
      revoke(name)
      until_true(function() return one:told():find('\n{"event":"revoked"', 1, true), one:told() end)
      one:await "revoked: "
      assert.is_true(stage.held(name, 1))
      broker.suite:delete_queue(stage.holder(name, 1))
      assert.same({ "exit", 76 }, { one:wait() })
      local held = '"name":"[^"]+","kind":"slot","ticket":"%x+","slot":1,"held":[%d.]+,"at":[%d.]+}\n'
      assert.matches('\n{"event":"revoked",' .. held .. '{"event":"lost","code":"lost","message":"[^\n]+",' .. held
        .. '{"event":"ended","signal":15,"at":[%d.]+}\n$', one:told())
    end)

    operated_it("programs of its connections, and of an alarm, by lines of JSON", function()
      local name, connection = gate.name(), client.unique "told"
      local holding = holder(name)
      local one = command.start({ fd = 7 }, "--status-fd", "7", "--name", connection, "--poll", "0.2", name, "-c",
        "echo in; sleep 600")
      local function told_of(event, link)
        local line = ('{"event":"%s","link":"%s","at":'):format(event, link)
        until_true(function() return one:told():find(line, 1, true), one:told() end)
      end
      told_of("up", "prober")
      stage.undo(function() broker.suite:alarm(false) end)
      broker.suite:alarm(true)
      told_of("blocked", "prober")
      broker.suite:alarm(false)
      told_of("unblocked", "prober")
      broker.suite:close_connection(connection .. " prober")
      told_of("down", "prober")
      holding:close_input()
      one:await "in\n"
      broker.suite:close_connection(connection .. " holder")
      told_of("down", "holder")
      assert.same({ "exit", 76 }, { one:wait() })
    end)

    it("systemd, and not the command", function()
      local name, path = gate.name(), command.place() .. "/notify"
      local manager = command.start({ program = process.PYTHON }, "-c", [[
import socket, sys
one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
one.bind(sys.argv[1])
print("ready", flush=True)
while True: print(one.recv(4096).decode(), flush=True)
]], path)
      manager:await "ready\n"
      local held = holder(name)
      local waiter = command.start({ env = { NOTIFY_SOCKET = path }, input = true }, "--notify", name, "-c",
        'echo "socket ${NOTIFY_SOCKET-none}"; read line')
      manager:await 'STATUS=waiting for "[^\n]*": it is held\n'
      held:close_input()
      manager:await "\nREADY=1\nSTATUS=holding "
      waiter:await "socket none\n"
      waiter:close_input()
      waiter:wait()
      manager:await "\nSTOPPING=1\n"
    end)

    operated_it("nothing that a terminal obeys: texts of the broker are cleaned", function()
      local url, user = stage.user(".*", ".*", ".*")
      local one = holder("--url", url, gate.name())
      broker.suite:close_connections_of(user, "\27[2Jgone\194\155")
      assert.same({ "exit", 76 }, { one:wait() })
      assert.matches("gone", one:output(), 1, true)
      assert.is_nil(one:output():find("[\27\155]"))
    end)
  end)

  it("runs in place of the one before it with --take-over, and the next in place of it", function()
    local name, before = gate.name(), nil
    for i = 1, 3 do
      local one = command.start({}, "--take-over", "--poll=0.2", "--on-revoke=TERM", name, "-c",
        ("echo in %d; exec sleep 600"):format(i))
      one:await("in " .. i .. "\n")
      if before then assert.same({ "exit", 143 }, { before:wait() }) end
      before = one
    end
    for _, option in ipairs { "-S", "-r", "-W", "--fast", "--all", "-n" } do
      assert.matches("%-%-take%-over", ends(64, "--take-over", option, "mutex:db", "true"))
    end
  end)

  it("sends the signal of --on-revoke to the process group of its command, and to no other process", function()
    local name = stage.semaphore(1)
    local one = command.start({ input = true }, "-S", "--on-revoke", "USR1", name, "-c", [[
      sh -c 'trap "echo member asked; exit" USR1; echo in; while :; do sleep 0.1; done' &
      setsid sh -c 'echo job $$; exec sleep 600' &
      trap 'echo command asked' USR1; echo in
      wait; wait; read line; exit 4]])
    local job = command.process((one:await "job (%d+)\n"))
    one:await "in\n.*in\n"
    until_true(function() return process.contents(("/proc/%d/comm"):format(job.pid)) == "sleep\n" end)
    revoke(name)
    one:await "member asked\n"
    one:await "command asked\n"
    assert.is_true(job:alive())
    job:signal "TERM"
    one:write "go\n"
    assert.same({ "exit", 4 }, { one:wait() })
  end)

  operated_it("closes its connections also if it does not get the lock", function()
    local name, log = gate.name(), broker.suite.directory .. "/log/rabbit.log"
    -- Whether the broker's log tells of two ends of connections of this name, by lines of this level.
    local function closed(label, level)
      local line = "%[" .. level .. "%][^\n]* closing AMQP connection[^\n]*" .. (name .. label):gsub("%p", "%%%0")
      return select(2, process.contents(log):gsub(line, "")) == 2
    end
    local one = holder("--name", name .. " killed", name)
    ends(75, "-n", "--name", name .. " busy", name, "true")
    one:signal "KILL" -- to see that the log tells the difference
    until_true(function() return closed(" busy", "info") and closed(" killed", "warning") end)
  end)
end)
