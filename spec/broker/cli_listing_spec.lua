-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- amqp-lock-admin ls and holders, which ask rabbitmqctl of a real broker. (cli_top_spec has the management API.)
local broker = require "spec.support.broker"
local command = require "spec.support.command"
local gate = require "spec.support.gate"
local kinds = require "spec.support.kinds"
local line = require "spec.support.line"
local process = require "spec.support.process"
local scene = require "spec.broker.token_scene"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

local ADMIN = command.DIRECTORY .. "/amqp-lock-admin"
local SECONDS = 120 -- rabbitmqctl takes half a second, or half a minute on a busy machine

-- Runs a line of a shell, for which rabbitmqctl is that of the suite's node; returns its output.
local function shell(text)
  return process.shell("env", ("PATH=%s/bin:%s"):format(broker.suite.directory, os.getenv "PATH"),
    "AMQP_URL=amqp://127.0.0.9:" .. broker.suite.port, "bash", "-c", "set -e\n" .. text) -- no API is there
end

-- What amqp-lock-admin prints. rabbitmqctl may wait for ever on a busy machine.
local function asked(arguments)
  return (select(2, until_true(function() return pcall(shell, ADMIN .. " " .. arguments) end, 1800)))
end

-- The process waits for a lock of this kind.
local function waiter(name, kind, label)
  local one = line.process(name, ("{ name = '%s' }"):format(label))
  one:run("of = require 'spec.support.kinds'.all[...].over", kind)
  one:begin("lock = assert(of(conn, ...):acquire{ timeout = 7200, poll = 600 }) return true", name)
  return one
end

describe("amqp-lock-admin, by rabbitmqctl,", function()
  operated_it("shows who holds and who waits, of every kind, and how to close the connection of a holder", function()
    local name, quorum = stage.mutex(), kinds.all.quorum_mutex
    local cluster = quorum and quorum.name() -- its own, as the queue's name is that of a fast mutex
    scene.name(name, true)
    stage.undo(function() stage.delete(gate.bell("read", name)) end)
    stage.undo(function() stage.delete(name .. "-fastmutex") end)
    stage.hang(name, 2)
    stage.add(name, 1, 2)
    local conn, hung = stage.connect(nil, { name = "the holder" }), stage.connect(nil, { name = "it's hung" })
    stage.take(conn:semaphore(name))
    stage.take(conn:semaphore(name))
    local fast = stage.take(conn:fast_mutex(name))
    local mutex = stage.take(hung:mutex(name, { retain = 60 }))
    gate.take("read", name, nil, conn)
    assert(conn:token_semaphore(name):resize(1))
    local permit = stage.take(conn:token_semaphore(name))
    local clusters = quorum and stage.take(quorum.over(conn, cluster))
    local expected = {
      ('"name":"%s","kind":"semaphore","total":2,"free":0'):format(name),
      ('"name":"%s","kind":"token_semaphore","total":1,"free":0'):format(name),
    }
    for _, row in ipairs {
      'slot holds "slot":1,"what":"slot 1","holder":"the holder"',
      'slot holds "slot":2,"what":"slot 2","holder":"the holder"',
      'slot waits "what":"waits","holder":"waits for a slot"',
      'mutex holds "what":"mutex, held or retained","holder":"it\'s hung"',
      'mutex waits "what":"waits","holder":"waits for it"', 'read holds "what":"reader","holder":"the holder"',
      'write holds "what":"writer, waits for readers","holder":"waits to write"',
      'rwlock waits "what":"waits","holder":"waits to read"', 'permit holds "what":"permit","holder":"the holder"',
      'permit waits "what":"waits for a permit","holder":"waits for a permit"',
      'fast_mutex holds "what":"fast mutex","holder":"the holder"',
      'fast_mutex waits "what":"waits for the fast mutex","holder":"waits for the fast one"',
    } do
      local kind, state, rest = row:match "^(%S+) (%S+) (.*)"
      table.insert(expected, ('"name":"%s","kind":"%s","state":"%s",%s,"since":'):format(name, kind, state, rest))
      if quorum and kind == "fast_mutex" then
        table.insert(expected, (expected[#expected]:gsub('^"name":"[^"]+', ('"name":"%s'):format(cluster))))
      end
    end
    local next_one = waiter(name, "mutex", "waits for it")
    waiter(name, "slot", "waits for a slot")
    waiter(name, "permit", "waits for a permit")
    waiter(name, "fast_mutex", "waits for the fast one")
    if quorum then waiter(cluster, "quorum_mutex", "waits for the fast one") end
    waiter(name, "write", "waits to write")
    gate.until_held("write", name)
    waiter(name, "read", "waits to read")
    for queue, consumers in pairs { [name .. "-bell"] = 3, [name .. "-mutexbell"] = 2, [name .. "-rwbell"] = 2,
      [name .. ".semaphore"] = 2, [name .. "-fastmutex"] = 2, [(cluster or name) .. "-fastmutex"] = 2 } do
      until_true(function()
        local fine, tags = pcall(broker.suite.consumer_tags, broker.suite, queue)
        return fine and #tags >= consumers, queue
      end, SECONDS)
    end
    local output
    until_true(function()
      output = ""
      for _, one in ipairs { name, cluster } do
        output = output .. asked(("who --json -w 900 %s"):format(one))
      end
      for _, text in ipairs(expected) do
        if not output:find(text, 1, true) then return nil, text .. " is not in\n" .. output end
      end
      return true
    end, 1800) -- as in readme_spec
    assert.equal(#expected, select(2, output:gsub("\n", "\n")), output)
    for _, lock in ipairs { mutex, permit, fast, clusters or nil } do
      local told = ('"ticket":"%s","user":"guest","connection":"127.0.0.1:'):format(lock.ticket)
      assert.is_truthy(output:find(told, 1, true), output)
    end
    for since in output:gmatch '"since":(%d+)' do assert.is_true(math.abs(since - os.time()) < 7200) end

    local closing = asked(("holders -w 900 --lock %s"):format(name))
    local line_of = closing:match(("# '%s, mutex, held or retained: held by it'\\''s hung, since [^\n]*\n[^\n]*\n"
      .. "(rabbitmqctl [^\n]*\n)"):format((name:gsub("%p", "%%%0"))))
    shell(assert(line_of, closing))
    assert.is_true(next_one:finish(SECONDS))
    until_true(function() return not mutex:held() end, SECONDS)
    stage.fails("lost", mutex:held())
  end)
end)
