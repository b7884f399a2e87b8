-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Runs the README's programs unchanged, each in a Lua of its own, and the first programs that it links to. Types the
-- commands that the guide gives to administrators and operators.
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local process = require "spec.support.process"
local c_program = require "spec.support.program"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)
local operated_describe = broker.suite and describe or pending

local function read(path) return assert(process.contents(path)) end

describe("the README", function()
  local first = read "README.md":match "```lua\n(.-)```"
  local url = os.getenv "AMQP_URL"
  local conn

  before_each(function() conn = stage.connect() end)
  after_each(function()
    for _, name in ipairs { "images", "convert", "backups" } do conn:admin(name):destroy() end
    stage.clear()
  end)

  -- By a shell that knows of no broker and no module; only, the broker runs already, and the Lua of this run is used.
  operated_it("has lines for the shell after which its program and its command work, as they stand there", function()
    local shell, command = read "README.md":match(
      "## Try it\n.-```sh\nspec/support/broker start /tmp/broker +#[^\n]*(\n.-)```.-run `(lua5%.4 first%.lua)`")
    local line = read "README.md":match "```sh\n(amqp%-lock %-n nightly [^\n]*)\n```"
    local place, root, lua = process.directory(), process.shell("pwd"):match "[^\n]+", os.getenv "LUA" or "lua5.4"
    finally(function() process.shell("rm", "-rf", place) end)
    process.write(place .. "/first.lua", first)
    process.write(place .. "/report", "#!/bin/sh\necho reporting\n")
    local lines = ("cd '%s'%scd '%s'\nchmod +x report\n%s\n%s"):format(root,
      shell:gsub("/tmp/broker", broker.suite.directory):gsub("make cli &&", "true &&"), place,
      (command:gsub("lua5%.4", lua:match "[^/]+$")), line)
    local fine, output = pcall(process.shell, "env", "-i", "PATH=" .. os.getenv "PATH", "HOME=" .. place,
      "LUA=" .. lua:match "[^/]+$", "sh", "-e", "-c", lines)
    assert.is_true(fine, output)
    assert.matches("alone, %x+\nreporting\n$", output)
  end)

  it("shows commands for the shell that work", function()
    local lines = read "README.md":match "for a fleet:\n\n```sh\n(.-)```"
    local place, cli = process.directory(), os.getenv "AMQPLOCKS_CLI" or "build/cli"
    local path = cli:match "^/" and cli or process.shell("pwd"):match "[^\n]+" .. "/" .. cli
    finally(function() process.shell("rm", "-rf", place) end)
    for _, program in ipairs { "report", "convert", "read", "write" } do
      process.write(place .. "/" .. program, "#!/bin/sh\necho " .. program .. " $AMQP_LOCK_KIND\n")
    end
    local fine, output = pcall(process.shell, "env", "-i", "PATH=" .. path .. ":" .. os.getenv "PATH",
      "AMQP_URL=" .. url, "sh", "-e", "-c", ("cd '%s'\nchmod +x *\n%s"):format(place, lines))
    assert.is_true(fine, output)
    assert.matches("^report mutex\nreport mutex\nconvert slot\n", output)
    assert.matches("\nread read\n", output)
    assert.matches("\nwrite write\n", output)
  end)

  -- A program that the README points at, in the checkout.
  local function pointed_at(path)
    assert.is_truthy(read "README.md":find(("](%s)"):format(path), 1, true), path)
    return path
  end

  local cqueues_it = pcall(require, "cqueues") and it or pending

  cqueues_it("points at coroutines of an event loop that work", function()
    local lines = {}
    local output, fine = process.run_lua(read(pointed_at "examples/cqueues/first.lua"))
    assert.is_true(fine, output)
    for line in output:gmatch "[^\n]+" do table.insert(lines, line) end
    table.sort(lines)
    assert.same({ "coroutine 1 is alone", "coroutine 2 is alone", "coroutine 3 is alone" }, lines)
  end)

  it("points at a program in C that works", function()
    finally(c_program.remove)
    assert(conn:admin("images"):resize(1))
    local status, output = c_program.run({ AMQP_URL = url, LD_LIBRARY_PATH = c_program.LIB },
      c_program.build(pointed_at "examples/c/first.c", "amqplocks"))
    assert.same({ 0, "in slot 1\n" }, { status, output })
    assert(assert(conn:semaphore("images"):try_acquire()):release())
  end)

  it("points at an example of waiting that works", function()
    assert(conn:admin("backups"):resize(1))
    local lock = assert(conn:semaphore("backups"):try_acquire())
    local pipe = assert(io.popen(("%s examples/waiting.lua 0 2>&1"):format(os.getenv "LUA" or "lua5.4")))
    assert.equal("waiting for 0 s: 1 of 1 held", pipe:read "*l")
    assert.is_true(lock:release())
    assert.matches("working\ndone\n$", pipe:read "*a")
    assert.is_true(pipe:close())
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
    return (stage.connect_as(permissions[1], permissions[2], permissions[3], { log = log }))
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

  -- Uses a lock: alone, and when it has to wait, at its bell by the time it is let go.
  local function used(take, holder)
    return function(conn)
      local lock, message, code = take(conn, { timeout = 60 })
      if not lock then return nil, message, code end
      assert(lock:verify())
      assert(lock:release())
      local held = stage.take(holder, { timeout = 60 })
      return assert(take(conn, { timeout = 60, poll = 600, on_wait = function(seconds)
        if seconds > 0.5 then held:release() end
      end })):release()
    end
  end

  after_each(stage.clear)

  it("is enough for a mutex, for a fast one, for a reader, for a writer, and for one that becomes the other", function()
    is_enough("to lock the mutex db", { 1, 3 },
      used(function(conn, options) return conn:mutex("db"):acquire(options) end, stage.connect():mutex "db"))
    stage.undo(function() stage.delete "db-fastmutex" end)
    is_enough("to lock the fast mutex db, also for clusters", { 1, 3 },
      used(function(conn, options) return conn:fast_mutex("db"):acquire(options) end, stage.connect():fast_mutex "db"))
    local rwlock = stage.connect():rwlock "catalogue"
    local writer = { acquire = function(_, options) return rwlock:write(options) end }
    for label, method in pairs { ["to read catalogue"] = "read", ["to write it"] = "write" } do
      is_enough(label, { 1, 2, 3 }, used(function(conn, options)
        local lockable = conn:rwlock "catalogue"
        return lockable[method](lockable, options)
      end, writer))
    end
    is_enough("to write, then downgrade", { 1, 2, 3 }, function(conn)
      local lock, message, code = conn:rwlock("catalogue"):write { timeout = 60 }
      if not lock then return nil, message, code end
      assert(lock:downgrade())
      return lock:release()
    end)
    stage.fails("refused", connect_as(table_of["to read catalogue"]):rwlock("catalogue"):try_write())
    local lock = assert(connect_as(table_of["to write it"]):rwlock("catalogue"):write { timeout = 60 })
    stage.fails("refused", lock:downgrade())
    assert.is_true(lock.kind == "write" and lock:held())
  end)

  it("is enough for permits, to take them and to make them", function()
    is_enough("to administer them", { 1, 2, 3 }, function(conn)
      local permits = conn:token_semaphore "transfers"
      for _, step in ipairs { { "resize", 2 }, { "add", 2 }, { "remove", 1 }, { "repair" }, { "slots" },
        { "destroy" } } do
        local done, message, code = permits[step[1]](permits, step[2])
        if not done then return nil, message, code end
      end
      return true
    end)
    local transfers = stage.connect():token_semaphore "transfers"
    stage.undo(function() stage.connect():token_semaphore("transfers"):destroy() end)
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
    stage.undo(function() stage.connect():admin("images"):destroy() end)
    stage.undo(function() stage.connect():token_semaphore("transfers"):destroy() end)
    assert(images:resize(2))
    assert(transfers:resize(2))
    local slots, permits = "to lock the semaphore images", "to take permits of transfers"
    local function assert_bolted(_, message)
      assert.is_nil(message:find("locks are held without the bolt", 1, true), message)
    end
    local function take(permissions, kind, name, log)
      local conn = connect_as(permissions, log)
      local locks, message, code = conn[kind](conn, name):acquire { count = 2, timeout = 60 }
      if not locks then return nil, message, code end
      return locks:release()
    end
    assert(take(both(slots, "to take several of its slots at once, in addition"), "semaphore", "images", assert_bolted))
    assert(take(both(permits, "to take several of them at once, in addition"), "token_semaphore", "transfers",
      assert_bolted))
    stage.fails("refused", take(table_of[slots], "semaphore", "images"))
    stage.fails("refused", take(table_of[permits], "token_semaphore", "transfers"))
  end)
end)

operated_describe("the guide's commands for operators", function()
  after_each(stage.clear)

  it("find whatever the table beneath them explains, and tell who holds from who waits", function()
    local text = read("docs/guide.md"):match "## What an operator sees\n(.-)\n## "
    local name = client.unique "lock"
    local conn, foreign = stage.connect(nil, { name = "press 4" }), stage.client():channel()
    stage.undo(function() stage.destroy(stage.connect(), name) end)
    assert(conn:admin(name):resize(1))
    assert(conn:token_semaphore(name):resize(1))
    stage.take(conn:semaphore(name))
    local fast, permit = stage.take(conn:fast_mutex(name)), stage.take(conn:token_semaphore(name))
    local mutex, reader = stage.take(conn:mutex(name)), assert(conn:rwlock(name):read())
    for _, role in ipairs { "writer", "admin", "tokenadmin", "many", "tokenmany" } do
      assert(foreign:call { method = "queue.declare", queue = name .. "-" .. role, exclusive = true })
    end
    for queue, kind in pairs { [".semaphore"] = "token_semaphore", ["-fastmutex"] = "fast_mutex" } do
      stage.process(name, "{ name = 'press 5' }"):begin(("return conn:%s(...):acquire{ timeout = 7200 } ~= nil"):format(
        kind), name)
      until_true(function() return #broker.suite:consumer_tags(name .. queue) == 2 end)
    end

    local script, plain = 'rabbitmqctl() { spec/support/broker ctl "$1" --quiet "$@"; }', name:gsub("%p", "%%%0")
    script = script:gsub('"%$1"', "'" .. broker.suite.directory .. "'")
    for line in text:gmatch "\n(rabbitmqctl list_[^\n]+)" do
      if not line:find "owner_pid" then script = script .. "\n" .. line:gsub("'N", "'" .. name) end
    end
    local expected = { "1-B", "admin", "many", "mutex", "reader-" .. reader.ticket, "tokenadmin", "tokenmany",
      "writer" }
    local by = '\t(%S+)\t(%S+)\t[^\n]*"x%-amqplocks%-holder","([^"]*)"'
    local seen, roles = {}, {} -- by all calls so far: on a busy machine rabbitmqctl may lose the end of a list
    until_true(function()
      local output = "\n" .. process.shell("sh", "-c", script .. "\n:")
      for channel, tag, holder in output:gmatch(plain .. "%.semaphore" .. by) do
        local held = output:match("\n" .. channel:gsub("%p", "%%%0") .. "\t(%d+)\n")
        seen[holder] = held and held .. " " .. tag or seen[holder]
      end
      for tag, active, holder in output:gmatch(plain .. "%-fastmutex" .. by) do
        seen["fast " .. holder] = active .. " " .. tag
      end
      for role in output:gmatch("\n" .. plain .. "%-(%S+)\t%[") do
        if not roles[role] then table.insert(roles, role) end
        roles[role] = true
      end
      seen.ticket = seen.ticket or output:find("\n" .. plain .. '%-mutex\t%[[^\n]*"' .. mutex.ticket .. '"[^\n]*\n')
      seen.token = seen.token or output:find(name .. "-fastmutex\t1\n", 1, true)
      table.sort(roles)
      return table.concat(roles, " ") == table.concat(expected, " ") and seen.ticket and seen.token
        and seen["press 4"] == "1 " .. permit.ticket and seen["fast press 4"] == "true " .. fast.ticket
        and (seen["press 5"] or ""):find "^0 %x+$" and (seen["fast press 5"] or ""):find "^false %x+$", output
    end, 1800)
    for _, role in ipairs(expected) do
      local queue = "`N-" .. role:gsub("^1", "3"):gsub(reader.ticket, "<ticket>") .. "`"
      assert.is_truthy(text:find(queue, 1, true), queue)
    end
    broker.suite:ctl("delete_queue", name .. "-mutex") -- which takes the lock from its holder
    stage.fails("lost", mutex:verify())
  end)
end)
