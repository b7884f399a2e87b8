-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The trace that docs/debugging.md reads.
local amqplocks = require "amqplocks"
local broker = require "spec.support.broker"
local client = require "spec.support.client"
local process = require "spec.support.process"
local proxy = require "spec.support.proxy"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

stage.tidy()

-- Where an operation that then lost its race found the mutex free.
local function lost_race(text)
  for at, op in text:gmatch "()one/%d+ op (%d+) finds it free %(slot 0%)\n" do
    if text:find(("one/%%d+ op %s has lost the race"):format(op), at) then return at end
  end
end

operated_it("a trace of two processes has a lost race, a hand-over and a lost lock, in whole lines", function()
  local path, user, name, password = os.tmpname(), client.unique "user", stage.mutex(), "sesame4711"
  stage.undo(function() return os.remove(path), broker.suite:delete_user(user) end)
  local url = broker.suite:add_user(user, ".*", ".*", ".*"):gsub("password@", password .. "@")
  broker.suite:change_password(user, password)
  local queue, between = name .. "-mutex", proxy.start(url)
  local function connect(as, its_url)
    local one = process.start{ AMQPLOCKS_TRACE = path }
    one:run([[
      local name, as, url = ...
      mutex = assert(require("amqplocks").connect(url, { name = as })):mutex(name)
      assert(assert(mutex:acquire()):release())
    ]], name, as, its_url)
    return one
  end
  local one, two = connect("one", between.url), connect("two", url)
  until_true(function() -- the broker may be slow to answer, and then says that it is held
    between:switch("down", "hold", 2) -- to one's prober
    one:begin "return select(3, mutex:try_acquire())"
    two:run "lock = assert(mutex:acquire())"
    client.shared():probe(queue, { message_id = "\n\27[2J", correlation_id = ("x"):rep(250), type = ("y"):rep(250) })
    between:switch("down", "pass", 2)
    assert.equal("busy", one:finish())
    two:run "lock:release()"
    return lost_race(process.contents(path))
  end)
  one:run "lock = assert(mutex:acquire())"
  local before = #process.contents(path)
  two:begin "lock = assert(mutex:acquire { poll = 600 })"
  until_true(function() return process.contents(path):find("two/%d+ op %d+ acquire.c:waiting\n", before) end)
  one:run "assert(lock:release())"
  two:finish()
  broker.suite:delete_queue(queue)
  two:run "while lock:held() do end"
  local text, known = process.contents(path), { QUEUE = queue, NAME = name }
  local at = lost_race(text)
  for _, shown in ipairs{
    'one/%d+ op %d+ finds it free %(slot 0%)\n', 'one/%d+ holder %d+ > queue.declare queue="QUEUE" exclusive=1\n',
    'one/%d+ holder %d+ < channel.close reply_code=40%d reply_text="', 'one/%d+ "QUEUE" is not ours: contended: %u',
    'one/%d+ op %d+ has lost the race for "QUEUE"\n', 'one/%d+ op %d+ busy: ', 'two/%d+ op %d+ begins: "NAME"\n',
    'two/%d+ op %d+ finds nothing free: 1 of 1 are held', 'two/%d+ op %d+ acquire.c:waiting\n',
    'one/%d+ "QUEUE" is being released\n', 'two/%d+ holder %d+ < header type="amqplocks.token"',
    'two/%d+ op %d+ acquire.c:claiming\n', 'two/%d+ "QUEUE" is held\n', 'two/%d+ op %d+ done\n',
    'two/%d+ note: "QUEUE" was lost: its queue was deleted, but not by this client\n',
  } do
    local words = shown:gsub("%u%u%u+", function(word) return known[word] and known[word]:gsub("%p", "%%%0") end)
    at = select(2, text:find(words, at)) or error(("%s is not in\n%s"):format(words, text:sub(at)))
  end
  for written in text:gmatch "([^\n]*)\n" do
    assert.matches("^%d+%-%d%d%-%d%dT%d%d:%d%d:%d%d%.%d%d%d%d%d%dZ [ot][nw][eo]/%d+ %S", written)
    assert.is_true(#written < 512 and not written:find "%c", written)
  end
  assert.matches('message_id="??[2J"', text, 1, true)
  assert.is_nil(text:find(password, 1, true))
end)

it("a trace that cannot be written is an error of connect", function()
  local words = 'protocol: the trace file "/proc" cannot be opened: Is a directory'
  assert.equal(words, stage.fails("protocol", amqplocks.connect(nil, { trace = "/proc" })))
  assert.equal(words, process.start{ AMQPLOCKS_TRACE = "/proc" }:run(
    "return tostring(select(2, require('amqplocks').connect(nil, ...)))"))
end)

it("a trace beyond the limit of a file's size ends no program", function()
  local path = os.tmpname()
  stage.undo(function() return os.remove(path) end)
  assert.equal("released\n", process.shell("bash", "-c", [[ulimit -f 1; AMQPLOCKS_TRACE=$1 "$0" -e "$2" | cat]],
    os.getenv "LUA" or "lua5.4", path, [[
      local lock = assert(require("amqplocks").connect():mutex "trace limit":acquire())
      assert(lock:release()) print "released"]]))
  assert.equal(1024, #process.contents(path))
end)
