-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- amqp-lock-admin: its verbs, their exit statuses, and that other clients see what they do.
local amqplocks = require "amqplocks"
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local command = require "spec.support.command"
local gate = require "spec.support.gate"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"
local values = require "spec.support.programs.values"

local operated_it = broker.operated_it(it, pending)
local ADMIN = command.DIRECTORY .. "/amqp-lock-admin"

stage.tidy(command.clear)

local function start(...) return command.start({ program = ADMIN }, ...) end

-- Runs it with options of command.start; it must end with this status. Returns its output.
local function ends_with(how, status, ...)
  how.program = ADMIN
  return command.ends(how, status, ...)
end

local function ends(status, ...) return ends_with({}, status, ...) end

-- A name whose semaphore, token semaphore and fences are deleted at the end of the test.
local function fresh()
  local name = stage.name()
  stage.undo(function()
    local conn = assert(amqplocks.connect())
    conn:admin(name):destroy { fence = true }
    conn:token_semaphore(name):destroy()
    conn:mutex(name):forget_fence()
    conn:rwlock(name):forget_fence()
    conn:close()
  end)
  return name
end

local function slots_of(name) return stage.connect():admin(name):slots() end

describe("amqp-lock-admin", function()
  describe("administers a semaphore:", function()
    it("creates, adds, removes, resizes, destroys it, and tells how many slots there are then", function()
      local name = fresh()
      for _, row in ipairs { { "resize", "2", 2 }, { "resize", "0", 0 }, { "create", "2", 2 }, { "add", "3", 5 },
        { "remove", "1", 4 }, { "resize", "1", 1 } } do
        local verb, number, slots = row[1], row[2], row[3]
        assert.equal(("%s: %d slot%s\n"):format(name, slots, slots == 1 and "" or "s"), ends(0, verb, name, number))
        assert.equal(slots, slots_of(name))
      end
      assert.equal("1\n", ends(0, "slots", name))
      assert.equal("", ends(0, "destroy", name))
      assert.equal(0, slots_of(name))
    end)

    it("shows which slots are held, for people and as JSON", function()
      local name = fresh()
      ends(0, "create", name, "3")
      assert.equal(name .. ": 3 slots, 0 held\n", ends(0, "status", name))
      local sem = stage.connect():semaphore(name)
      stage.take(sem)
      stage.take(sem)
      assert.equal(name .. ": 3 slots, 2 held: 1, 2\n", ends(0, "status", name))
      assert.equal(('{"name":"%s","slots":3,"held":[1,2],"missing":[]}\n'):format(name), ends(0, "status", "--json",
        name))
      assert.equal(('{"name":"%s","slots":3}\n'):format(name), ends(0, "slots", "--json-output", name))
      stage.remove(name, 2)
      assert.equal(name .. ": 1 slot, 2 held: 1, 2; missing: 2\n", ends(0, "status", name))
      assert.equal(name .. ": 3 slots\n", ends(0, "repair", name) and ends(0, "resize", name, "3"))
    end)

    it("creates quorum queues with --quorum", function()
      local name = fresh()
      ends(0, "create", "--quorum", name, "1")
      local channel = stage.client():channel()
      local _, reason = channel:call { method = "queue.declare", queue = stage.slot(name, 1), durable = true,
        arguments = { ["x-queue-type"] = "classic", ["x-max-length"] = 0, ["x-overflow"] = "drop-head" } }
      assert.equal(406, reason.code)
    end)

    it("asks the holders of removed slots, waits for them, and tells that they have not released in time", function()
      local name = fresh()
      ends(0, "create", name, "2")
      local sem = stage.connect():semaphore(name)
      local first, second = stage.take(sem), stage.take(sem)
      assert.matches("^amqp%-lock%-admin: timeout: ", ends(75, "remove", "--wait", "0.2", name, "1"))
      assert.is_true(second:held())
      local one = start("resize", "--revoke", "--wait", "60", name, "0")
      until_true(function() return first:revoked() end)
      assert.is_nil(one:status())
      assert(first:release())
      assert.same({ "exit", 0 }, { one:wait() })
      assert(second:release())
    end)
  end)

  it("administers a token semaphore with -P", function()
    local name = fresh()
    local permits = stage.connect():token_semaphore(name)
    assert.equal(name .. ": 2 permits\n", ends(0, "create", "-P", name, "2"))
    assert.equal(name .. ": 4 permits\n", ends(0, "add", "--permits", name, "2"))
    local lock = stage.take(permits)
    assert.equal(name .. ": 4 permits, 1 held, 3 free\n", ends(0, "status", "-P", name))
    assert.equal(('{"name":"%s","permits":4,"free":3,"held":1}\n'):format(name), ends(0, "status", "-P", "--json",
      name))
    assert.matches("busy: ", ends(75, "resize", "-P", name, "0"))
    assert.equal(name .. ": 1 permit\n", ends(0, "remove", "-P", name, "3"))
    assert.same({ 1, 0, 1 }, { permits:slots() })
    assert(lock:release())
    ends(0, "destroy", "--wait", "60", "-P", name)
    assert.same({ 0, 0, 0 }, { permits:slots() })
  end)

  it("asks a holder to release a slot, or a lock with -m, -r and -W, and waits for it", function()
    local name = fresh()
    ends(0, "create", name, "1")
    assert.matches("not_held: ", ends(70, "revoke", name, "1"))
    local slot = stage.take(stage.connect():semaphore(name))
    ends(0, "revoke", name, "1")
    until_true(function() return slot:revoked() end)
    assert.matches("timeout: ", ends(75, "revoke", "--wait", "0.2", name, "1"))
    for option, kind in pairs { ["-m"] = "mutex", ["-r"] = "read", ["-W"] = "write" } do
      local other = gate.name()
      local lock = gate.take(kind, other)
      local one = start("revoke", option, "--wait", "60", other)
      until_true(function() return lock:revoked() end)
      assert(lock:release())
      assert.same({ "exit", 0 }, { one:wait() }, one:output())
    end
  end)

  it("makes and destroys the fence of a semaphore with --fence, and forgets those of other locks", function()
    local name = fresh()
    local function has(role) return client.shared():exists(name .. role) end
    ends(0, "create", "--fence", name, "1")
    ends(0, "destroy", name)
    assert.is_true(has "-fence")
    ends(0, "create", name, "1")
    ends(0, "forget-fence", name)
    assert.is_false(has "-fence")
    assert.equal(name .. ": 1 slot\n", ends(0, "repair", "--fence", name))
    assert.is_true(has "-fence")
    ends(0, "destroy", "--fence", name)
    assert.is_false(has "-fence")
    local conn = stage.connect()
    assert(assert(conn:mutex(name, { fenced = true }):acquire { timeout = 60 }):release())
    assert(assert(conn:rwlock(name, { fenced = true }):write { timeout = 60 }):release())
    for option, role in pairs { ["-m"] = "-mutexfence", ["-W"] = "-rwfence" } do
      assert.is_true(has(role))
      ends(0, "forget-fence", option, name)
      assert.is_false(has(role))
    end
  end)

  it("watches: prints the status when it changes, until a signal", function()
    local name = fresh()
    local one = start("watch", name)
    one:await(name .. ": 0 slots, 0 held\n")
    ends(0, "create", name, "2")
    one:await(name .. ": 2 slots, 0 held\n")
    local lock = stage.take(stage.connect():semaphore(name))
    one:await(name .. ": 2 slots, 1 held: 1\n")
    assert(lock:release())
    one:await("1 held: 1\n" .. name .. ": 2 slots, 0 held\n")
    local before
    for line in one:output():gmatch "[^\n]+" do -- there may be one of a semaphore that is only half made
      assert.not_equal(before, line)
      before = line
    end
    one:signal "INT"
    assert.same({ "signal", 2 }, { one:wait() })
  end)

  describe("ends with the status of what went wrong:", function()
    it("exists, not_found, timeout", function()
      local name = fresh()
      for _, verb in ipairs { "slots", "status", "repair", "destroy" } do
        assert.matches("^amqp%-lock%-admin: not_found: ", ends(66, verb, name))
        if verb ~= "repair" then assert.matches("not_found: ", ends(66, verb, "-P", name)) end
      end
      ends(66, "add", name, "1")
      ends(0, "create", name, "1")
      assert.matches("^amqp%-lock%-admin: exists: ", ends(78, "create", name, "1"))
      stage.take(stage.connect():mutex(name)) -- another lock of that name
      local other = client.shared():channel()
      assert(other:call { method = "queue.declare", queue = name .. "-admin", exclusive = true, auto_delete = true })
      assert.matches("^amqp%-lock%-admin: timeout: ", ends(75, "resize", "-w", "0.3", name, "2"))
      assert(other:call { method = "queue.delete", queue = name .. "-admin" })
      other:close()
    end)

    it("unreachable, auth, vhost, url", function()
      local output = ends_with({ env = { AMQP_URL = "amqp://guest:secret@127.0.0.1:1" } }, 69, "slots", "x")
      assert.matches("^amqp%-lock%-admin: unreachable: ", output)
      assert.is_nil(output:find("secret", 1, true))
      local url = os.getenv "AMQP_URL"
      for _, verb in ipairs { "slots", "watch" } do
        assert.matches("auth: ", ends(77, verb, "--url", (url:gsub("//.-@", "//nobody:nothing@")), "x"))
        assert.matches("vhost: ", ends(77, verb, "--url", url .. "/nowhere", "x"))
      end
      assert.matches("url: ", ends(64, "slots", "--url", "http://x", "x"))
    end)

    it("usage", function()
      for line, told in pairs {
        [""] = "there is no verb", ["lock x"] = 'no verb "lock"', ["statsu x"] = "did you mean status\n",
        ["break x"] = '"revoke" asks a holder',
        ["resize x"] = "takes NAME N, not 1", ["status x 1"] = "takes NAME, not 2",
        ["create x 0"] = "N is a whole number from 1 to 65535, not \"0\"", ["create -- x -1"] = "not \"-1\"",
        ["add x 1x"] = "not \"1x\"", ["add x 65536"] = "not \"65536\"", ["revoke x"] = "takes the number of a slot",
        ["revoke -m x 1"] = "takes NAME alone", ["revoke -m -r x"] = "different locks",
        ["create -m x 1"] = "-m (--mutex) is not for \"create\"", ["who -m x"] = "is not for \"who\"",
        ["who"] = "takes NAME", ["top x"] = '"top" takes no operands; --lock NAME shows one lock',
        ["top --json-output"] = '"top" prints JSON with option --once', ["top --quorum"] = 'is not for "top"',
        ["top --interval 0.05"] = "option --interval takes at least 0.1 seconds",
        ["resize -P --revoke x 1"] = "holders of permits cannot be asked", ["add --wait 1 x 1"] = "is for permits",
        ["slots a\27b"] = "control character", ["slots -w soon x"] = "seconds", ["slots --no-such x"] = "unknown",
      } do
        local words = {}
        for word in line:gmatch "[^ ]+" do table.insert(words, word) end
        local output = ends(64, values.unpack(words))
        assert.matches(told, output, 1, true)
        assert.is_nil(output:find("\27", 1, true))
      end
      assert.matches("is empty", ends(64, "slots", ""))
    end)
  end)

  it("tells what each verb takes with --help, and its version", function()
    local all = ends(0, "--help")
    local verbs = "create add remove resize destroy repair slots status revoke forget-fence watch who ls holders"
    for verb in verbs:gmatch "%S+" do
      assert.matches("\n  " .. verb:gsub("%-", "%%-") .. " ", all)
      local text = ends(0, verb, "--help")
      assert.matches("^usage: amqp%-lock%-admin " .. verb:gsub("%-", "%%-") .. " ", text)
      local has_mutex = text:find("--mutex", 1, true) ~= nil
      assert.equal(verb == "revoke" or verb == "status", has_mutex and verb ~= "forget-fence")
    end
    assert.equal("amqp-lock-admin " .. amqplocks._VERSION:match "[%d.]+" .. "\n", ends(0, "--version"))
  end)

  it("gives up at a signal, and leaves nothing; a signal that was ignored stays so", function()
    local name = fresh()
    ends(0, "create", name, "2")
    local sem = stage.connect():semaphore(name)
    local first, second = stage.take(sem), stage.take(sem)
    local one = start("revoke", "--wait", "600", name, "1")
    local deaf = command.start({ program = ADMIN, ignore = { "HUP" } }, "revoke", "--wait", "600", name, "2")
    until_true(function() return first:revoked() and second:revoked() end)
    one:signal "HUP"
    assert.same({ "signal", 1 }, { one:wait() })
    deaf:signal "HUP"
    assert(first:release() and second:release())
    assert.same({ "exit", 0 }, { deaf:wait() })
  end)

  it("gives permits back at a signal while it waits for more", function()
    local name = fresh()
    ends(0, "create", "-P", name, "3")
    local permits = stage.connect():token_semaphore(name)
    stage.take(permits)
    local one = start("remove", "-P", "--wait", "600", name, "3")
    until_true(function() return select(2, permits:slots()) == 0 end)
    one:signal "TERM"
    assert.same({ "signal", 15 }, { one:wait() })
    until_true(function() return select(2, permits:slots()) == 2 end)
    ends(0, "resize", "-P", name, "1")
  end)
end)

operated_it("amqp-lock-admin without a permission ends with 77, and so does a watch whose user is deleted", function()
  local name, user = fresh(), client.unique "user"
  stage.undo(function() pcall(broker.suite.delete_user, broker.suite, user) end)
  local url = broker.suite:add_user(user, "^$", ".*", ".*")
  assert.matches("refused: ", ends(77, "create", "--url", url, name, "1"))
  ends(0, "create", name, "1")
  broker.suite:permit(user, ".*", ".*", ".*")
  local one = start("watch", "--url", url, name)
  one:await(name .. ": 1 slot, 0 held\n")
  broker.suite:delete_user(user) -- which closes its connections
  assert.same({ "exit", 77 }, { one:wait(60) })
  assert.matches("\namqp%-lock%-admin: auth: ", one:output())
end)
