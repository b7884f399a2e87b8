-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Runs the README's programs unchanged, each in a Lua of its own, and the first programs that it links to. Types the
-- commands that the guide gives to administrators and operators.
local amqplocks = require "amqplocks"
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local process = require "spec.support.process"
local c_program = require "spec.support.program"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"
local values = require "spec.support.programs.values"

local operated_describe = broker.suite and describe or pending
local load_text = loadstring or load

local function read(path) return assert(process.contents(path)) end

local function lua_blocks(path)
  local blocks = {}
  for block in read(path):gmatch "```lua\n(.-)```" do blocks[#blocks + 1] = block end
  return blocks
end

describe("the README", function()
  local blocks = lua_blocks "README.md"
  local has_close = load_text "local x <close> = nil" ~= nil
  local url = os.getenv "AMQP_URL"

  after_each(function()
    local conn = assert(amqplocks.connect())
    conn:admin("images"):destroy()
    conn:close()
  end)

  -- In the order of the README, by a shell that knows of no broker and no module; only, the broker is in a directory
  -- of its own, and the Lua that runs the specs runs the program.
  it("begins with lines for the shell after which its first program works, as they stand there", function()
    local shell, command, program = read "README.md":match(
      "## The first program\n.-```sh\n(.-)```.-run `(lua5%.4 first%.lua)`.-```lua\n(.-)```")
    assert.equal(blocks[1], program)
    local place, root, lua = process.directory(), process.shell("pwd"):match "[^\n]+", os.getenv "LUA" or "lua5.4"
    finally(function()
      process.shell("spec/support/broker", "stop", place .. "/broker")
      process.shell("rm", "-rf", place)
    end)
    local file = assert(io.open(place .. "/first.lua", "w"))
    file:write(program)
    file:close()
    local lines, replaced = shell:gsub("/tmp/broker", place .. "/broker")
    assert.equal(2, replaced)
    lines = lines .. "cd " .. place .. "\n" .. command:gsub("lua5%.4", lua:match "[^/]+$")
    local fine, output = pcall(process.shell, "env", "-i", "PATH=" .. os.getenv "PATH", "HOME=" .. place,
      "LUA=" .. lua:match "[^/]+$", "sh", "-e", "-c", ("cd '%s'\n%s"):format(root, lines))
    assert.is_true(fine, output)
    assert.matches("resizing, in slot 1\n$", output)
  end)

  it("shows acquire, release and scopes that work", function()
    local shown = has_close and blocks[2] or blocks[2]:gsub("do\n  local lock <close>.-\nend\n", "")
    local before = ([[
      local amqplocks = require "amqplocks"
      local conn = assert(amqplocks.connect())
      assert(conn:admin("images"):resize(1))
      local images = conn:semaphore("images")
    ]])
    local after = "\nlocal last = assert(images:try_acquire()) print(last.slot) conn:close()"
    local output, fine = process.run_lua(before .. shown .. after)
    assert.is_true(fine, output)
    assert.equal("1\n", output)
  end)

  it("shows a mutex, readers and a writer, and permits that work", function()
    local before = ([[
      local amqplocks = require "amqplocks"
      local conn = assert(amqplocks.connect())
    ]])
    local output, fine = process.run_lua(before .. blocks[3] .. "\nprint(lock.kind, lock:held()) conn:close()")
    assert.is_true(fine, output)
    assert.matches("^alone with the database\nreading, beside others\nwriting, alone\n" ..
      "sending, beside at most one other\nread\tfalse", output)
    local conn = assert(amqplocks.connect())
    assert.is_true(conn:token_semaphore("image-link"):destroy())
    conn:close()
  end)

  it("shows commands for the shell that work", function()
    local lines = read "README.md":match "## From a shell\n.-```sh\n(.-)```"
    local place, cli = process.directory(), os.getenv "AMQPLOCKS_CLI" or "build/cli"
    local path = cli:match "^/" and cli or process.shell("pwd"):match "[^\n]+" .. "/" .. cli
    finally(function() process.shell("rm", "-rf", place) end)
    for _, program in ipairs { "report", "convert", "read", "write" } do
      local file = assert(io.open(place .. "/" .. program, "w"))
      file:write("#!/bin/sh\necho ", program, " $AMQP_LOCK_KIND\n")
      file:close()
      process.shell("chmod", "+x", place .. "/" .. program)
    end
    local fine, output = pcall(process.shell, "env", "-i", "PATH=" .. path .. ":" .. os.getenv "PATH",
      "AMQP_URL=" .. url, "sh", "-e", "-c", ("cd '%s'\n%s"):format(place, lines))
    local conn = assert(amqplocks.connect())
    conn:admin("convert"):destroy()
    conn:close()
    assert.is_true(fine, output)
    assert.matches("^report mutex\nreport mutex\nconvert slot\n", output)
    assert.matches("\nread read\n", output)
    assert.matches("\nwrite write\n", output)
    assert.matches("\nticket %x+\n$", output)
  end)

  it("shows a mutex with a fencing token, which the next holder's is larger than", function()
    finally(function()
      local raw = assert(client.connect())
      assert(raw:delete "ledger-mutexfence")
      raw:close()
    end)
    local output, fine = process.run_lua(([[
      local amqplocks = require "amqplocks"
      local conn = assert(amqplocks.connect())
      for _ = 1, 2 do
        %s
      end
      conn:close()
    ]]):format(blocks[4]))
    assert.is_true(fine, output)
    local tokens = {}
    for set, where in output:gmatch "update ledger set total = 7, fence = (%d+) where fence <= (%d+)\n" do
      assert.equal(set, where)
      table.insert(tokens, tonumber(set))
    end
    assert.is_true(#tokens == 2 and tokens[1] < tokens[2], output)
  end)

  local cqueues_it = pcall(require, "cqueues") and it or pending

  -- A program that the README points at, in the checkout.
  local function pointed_at(path)
    assert.is_truthy(read "README.md":find(("](%s)"):format(path), 1, true), path)
    return path
  end

  cqueues_it("points at coroutines of an event loop that work", function()
    local output, fine = process.run_lua(read(pointed_at "examples/cqueues/first.lua"))
    assert.is_true(fine, output)
    local lines = {}
    for line in output:gmatch "[^\n]+" do table.insert(lines, line) end
    table.sort(lines)
    assert.same({ "coroutine 1 is alone", "coroutine 2 is alone", "coroutine 3 is alone" }, lines)
  end)

  it("points at a program in C that works", function()
    local path = pointed_at "examples/c/first.c"
    finally(c_program.remove)
    local conn = assert(amqplocks.connect())
    assert(conn:admin("images"):resize(1))
    local status, output = c_program.run({ AMQP_URL = url, LD_LIBRARY_PATH = c_program.LIB },
      c_program.build(path, "amqplocks"))
    assert.equal(0, status, output)
    assert.equal("in slot 1\n", output)
    assert(conn:semaphore("images"):try_acquire())
    conn:close()
  end)

  it("points at an example of waiting that works", function()
    local conn = assert(amqplocks.connect())
    assert(conn:admin("backups"):resize(1))
    local lock = assert(conn:semaphore("backups"):try_acquire())
    local pipe = assert(io.popen(("%s examples/waiting.lua 0 2>&1"):format(os.getenv "LUA" or "lua5.4")))
    assert.equal("waiting for 0 s: 1 of 1 held", pipe:read "*l")
    assert.is_true(lock:release())
    local output = pipe:read "*a"
    assert.is_true(pipe:close(), output)
    assert.matches("working\ndone\n$", output)
    assert.is_true(conn:admin("backups"):destroy())
    conn:close()
  end)
end)

operated_describe("the guide's table of permissions", function()
  local table_of = {} -- configure, write, read, by the words in front of them

  setup(function()
    local block = read("docs/guide.md"):match "## Permissions.-\n```\n(.-)```"
    local row = "(to [^\n]*)\n +configure +(%S+)\n +write +(%S+)\n +read +(%S+)\n"
    for label, configure, write, consume in block:gmatch(row) do table_of[label] = { configure, write, consume } end
  end)

  local function connect_as(permissions, log)
    local user = client.unique "guide"
    stage.undo(function() broker.suite:delete_user(user) end)
    return stage.connect(broker.suite:add_user(user, permissions[1], permissions[2], permissions[3]),
      { timeout = 2, log = log })
  end

  -- All of it is enough for `use`, which gives nil and a message where it is not; none of these is too much.
  local function is_enough(label, needed, use)
    local all = assert(table_of[label], label)
    assert(use(connect_as(all, function(_, message)
      assert.is_nil(message:find("locks are held without the bolt", 1, true), message)
    end)))
    for _, i in ipairs(needed) do
      local less = { all[1], all[2], all[3] }
      less[i] = "^$"
      stage.fails("refused", use(connect_as(less)))
    end
  end

  -- Waits for what `acquire` takes, at its bell by the time it is let go, and is woken.
  local function waits(acquire, held)
    local function wait(seconds)
      if seconds > 0.5 then held:release() end
    end
    return assert(acquire { timeout = 20, poll = 600, on_wait = wait }):release()
  end

  -- Uses a lock: alone, and when it has to wait.
  local function used(take, holder)
    return function(conn)
      local acquire = take(conn)
      local lock, message, code = acquire { timeout = 5 }
      if not lock then return nil, message, code end
      assert(lock:verify())
      assert(lock:release())
      return waits(acquire, stage.take(holder, { timeout = 5 }))
    end
  end

  after_each(stage.clear)

  it("is enough for a mutex, without which nobody has it", function()
    local function take(conn)
      local mutex = conn:mutex "db"
      return function(options) return mutex:acquire(options) end
    end
    is_enough("to lock the mutex db", { 1, 3 }, used(take, stage.connect():mutex "db"))
  end)

  local function taker(method)
    return function(conn)
      local rwlock = conn:rwlock "catalogue"
      return function(options) return rwlock[method](rwlock, options) end
    end
  end

  it("is enough for a reader, for a writer, and for one that becomes the other", function()
    local rwlock = stage.connect():rwlock "catalogue"
    local writer = { acquire = function(_, options) return rwlock:write(options) end }
    is_enough("to read catalogue", { 1, 2, 3 }, used(taker "read", writer))
    is_enough("to write it", { 1, 2, 3 }, used(taker "write", writer))
    is_enough("to write, then downgrade", { 1, 2, 3 }, function(conn)
      local lock, message, code = conn:rwlock("catalogue"):write { timeout = 5 }
      if not lock then return nil, message, code end
      assert(lock:downgrade())
      return lock:release()
    end)
  end)

  it("is enough for permits, to take them and to make them", function()
    is_enough("to administer them", { 1, 2, 3 }, function(conn)
      local transfers = conn:token_semaphore "transfers"
      local function done(result, message, code)
        if not result then error({ message, code }) end
      end
      local fine, problem = pcall(function()
        done(transfers:resize(2))
        done(transfers:add(2))
        done(transfers:remove(1))
        done(transfers:repair())
        assert.same({ 3, 3, 0 }, { transfers:slots() })
        done(transfers:destroy())
      end)
      if fine then return true end
      if type(problem) ~= "table" or not problem[2] then error(problem) end
      return nil, problem[1], problem[2]
    end)
    local transfers = stage.connect():token_semaphore "transfers"
    stage.undo(function() transfers:destroy() end)
    assert(transfers:resize(1))
    is_enough("to take permits of transfers", { 3 }, function(conn)
      local lock, message, code = conn:token_semaphore("transfers"):try_acquire()
      if not lock then return nil, message, code end
      return lock:release()
    end)
  end)

  -- The permissions of two rows together.
  local function both(label, further)
    local all, one, other = {}, assert(table_of[label], label), assert(table_of[further], further)
    for i = 1, 3 do all[i] = ("(%s|%s)"):format(one[i], other[i]) end
    return all
  end

  it("is enough to take several slots or permits at once, with a row of its own", function()
    local images, transfers = stage.connect():admin "images", stage.connect():token_semaphore "transfers"
    stage.undo(function() images:destroy() end)
    stage.undo(function() transfers:destroy() end)
    assert(images:resize(2))
    assert(transfers:resize(2))
    local slots, permits = "to lock the semaphore images", "to take permits of transfers"
    local function assert_bolted(_, message)
      assert.is_nil(message:find("locks are held without the bolt", 1, true), message)
    end
    local function take(permissions, kind, name, log)
      local conn = connect_as(permissions, log)
      local locks, message, code = conn[kind](conn, name):acquire { count = 2, timeout = 5 }
      if not locks then return nil, message, code end
      return locks:release()
    end
    assert(take(both(slots, "to take several of its slots at once, in addition"), "semaphore", "images", assert_bolted))
    assert(take(both(permits, "to take several of them at once, in addition"), "token_semaphore", "transfers",
      assert_bolted))
    stage.fails("refused", take(table_of[slots], "semaphore", "images"))
    stage.fails("refused", take(table_of[permits], "token_semaphore", "transfers"))
  end)

  it("is not enough for the other's part", function()
    stage.fails("refused", connect_as(table_of["to read catalogue"]):rwlock("catalogue"):try_write())
    stage.fails("refused", connect_as(table_of["to write it"]):rwlock("catalogue"):try_read())
    local lock = assert(connect_as(table_of["to write it"]):rwlock("catalogue"):try_write())
    stage.fails("refused", lock:downgrade())
    assert.equal("write", lock.kind)
    assert.is_true(lock:held())
  end)
end)

operated_describe("the guide's commands for operators", function()
  after_each(stage.clear)

  local function commands()
    local text = read("docs/guide.md"):match "## What an operator sees\n(.-)\n## "
    local all = {}
    for command in text:gmatch "rabbitmqctl ([%w_ ]+)" do
      local words = {}
      for word in command:gmatch "[%w_]+" do table.insert(words, word) end
      all[words[1]] = all[words[1]] or words
    end
    return all
  end

  local function list(words)
    local rows = {}
    for row in broker.suite:ctl(values.unpack(words)):gmatch "[^\n]+" do table.insert(rows, row) end
    return rows
  end

  it("find whatever the table beneath them explains", function()
    local text = read("docs/guide.md"):match "## What an operator sees\n(.-)\n## "
    local name = client.unique "lock"
    local conn, other = stage.connect(), stage.client()
    stage.undo(function() conn:admin(name):destroy() end)
    assert(conn:admin(name):resize(1))
    stage.take(conn:semaphore(name))
    stage.take(conn:mutex(name))
    local lock = assert(conn:rwlock(name):read())
    local foreign = other:channel()
    for _, role in ipairs { "writer", "admin", "tokenadmin", "many", "tokenmany" } do
      assert(foreign:call { method = "queue.declare", queue = name .. "-" .. role, exclusive = true })
    end
    local function found()
      local path, roles = os.tmpname(), {}
      local file = assert(io.open(path, "w"))
      file:write(broker.suite:ctl(values.unpack(commands().list_queues)))
      file:close()
      local pipe = assert(io.popen(text:match "grep %-E [^\n]+" .. " " .. path))
      for row in pipe:lines() do
        if row:find(name, 1, true) == 1 then table.insert(roles, row:sub(#name + 2):match "^%S+") end
      end
      pipe:close()
      os.remove(path)
      table.sort(roles)
      return roles
    end
    local expected = { "1-B", "admin", "many", "mutex", "reader-" .. lock.ticket, "tokenadmin", "tokenmany", "writer" }
    until_true(function() -- on a busy machine a list may be short of something
      local roles = table.concat(found(), " ")
      return roles == table.concat(expected, " "), roles
    end, 60)
    for _, role in ipairs(expected) do
      local queue = "`N-" .. role:gsub("^1", "3"):gsub(lock.ticket, "<ticket>") .. "`"
      assert.is_truthy(text:find(queue, 1, true), queue)
    end
  end)

  it("tell who holds a permit or a fast mutex from who waits for one", function()
    local name, known, guide = client.unique "lock", commands(), read "docs/guide.md"
    local conn = stage.connect(nil, { name = "press 4" })
    stage.undo(function() conn:token_semaphore(name):destroy() end)
    stage.undo(function() stage.delete(name .. "-fastmutex") end)
    assert(conn:token_semaphore(name):resize(1))
    local permit, fast = stage.take(conn:token_semaphore(name)), stage.take(conn:fast_mutex(name))
    for _, lockable in ipairs { "conn:token_semaphore(...)", "conn:fast_mutex(...)" } do
      stage.process(name, "{ name = 'press 5' }"):begin(("return %s:acquire{ timeout = 600 } ~= nil"):format(lockable),
        name)
    end
    local function fast_rows(verb) -- of the command in the guide that looks at fast mutexes
      local words = {}
      for word in assert(guide:match("rabbitmqctl (" .. verb .. "[%w_ ]+)| grep %-F 'N%-fastmutex'")):gmatch "%S+" do
        table.insert(words, word)
      end
      return list(words)
    end
    local seen
    until_true(function()
      local unacknowledged = {}
      for _, row in ipairs(list(known.list_channels)) do
        local channel, count = row:match "^(%S+)\t(%d+)$"
        if channel then unacknowledged[channel] = count end
      end
      seen = {}
      for _, row in ipairs(list(known.list_consumers)) do
        local queue, channel, tag, holder = row:match '^(%S+)\t(%S+)\t(%S+)\t.*"x%-amqplocks%-holder","([^"]*)"'
        if queue == name .. ".semaphore" then seen[holder] = (unacknowledged[channel] or "") .. " " .. tag end
      end
      for _, row in ipairs(fast_rows "list_consumers") do
        local tag, active = row:match("^" .. name:gsub("%p", "%%%0") .. "%-fastmutex\t(%x+)\t(%l+)\t")
        if tag then seen["fast " .. row:match '"x%-amqplocks%-holder","([^"]*)"'] = active .. " " .. tag end
      end
      return seen["press 5"] and seen["fast press 5"]
    end, 120)
    assert.same({ "1 " .. permit.ticket, "true " .. fast.ticket }, { seen["press 4"], seen["fast press 4"] })
    assert.matches("^0 %x+$", seen["press 5"])
    assert.matches("^false %x+$", seen["fast press 5"])
    local queues = table.concat(fast_rows "list_queues", "\n") .. "\n"
    assert.is_truthy(queues:find(name .. "-fastmutex\t1\n", 1, true), queues)
  end)

  it("show who has a mutex, and take it away", function()
    local name = client.unique "lock"
    local known = commands()
    local lock = stage.take(stage.connect(nil, { name = "press 6" }):mutex(name))
    local found = broker.suite:row(name .. "-mutex", values.unpack(known.list_queues))
    assert.matches('"' .. lock.ticket .. '"', found, 1, true)
    assert.matches('"press 6"', found, 1, true)
    broker.suite:ctl("delete_queue", name .. "-mutex")
    stage.fails("lost", lock:verify())
  end)
end)
