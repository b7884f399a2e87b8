-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- amqp-lock-admin ls and holders, from what real brokers list: who holds, who waits, and that the printed line
-- closes the holder's connection. (cli_top_spec has the management API.)
local broker = require "spec.support.broker"
local command = require "spec.support.command"
local gate = require "spec.support.gate"
local line = require "spec.support.line"
local process = require "spec.support.process"
local scene = require "spec.broker.token_scene"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

local SECONDS = 120 -- rabbitmqctl takes half a second, or half a minute on a busy machine

-- A directory with the command, and a rabbitmqctl for a node.
local function tools(node)
  local place = command.place()
  local here = process.shell("pwd"):match "^[^\n]+"
  local file = assert(io.open(place .. "/rabbitmqctl", "w"))
  file:write(("#!/bin/sh\ncd '%s' && exec spec/support/broker ctl '%s' \"$@\"\n"):format(here, node.directory))
  file:close()
  process.shell("chmod", "+x", place .. "/rabbitmqctl")
  process.shell("sh", "-c", 'ln -sf "$(realpath "$1")" "$2"', "sh", command.DIRECTORY .. "/amqp-lock-admin", place)
  return place
end

-- Runs a line of a shell, which finds these tools; returns its output.
local function shell(place, text)
  return process.shell("env", "PATH=" .. place .. ":" .. os.getenv "PATH", "bash", "-c", "set -e -o pipefail\n" .. text)
end

-- The line that `amqp-lock-admin VERB` prints when it has no input, with more options for the filter.
local function printed(place, verb, options)
  local text = process.shell("sh", "-c", '"$1"/amqp-lock-admin "$2" 2>&1; test $? = 64', "sh", place, verb)
  local pipeline = text:match "\n%s+({ rabbitmqctl.-%-)\n"
  return (pipeline:gsub("amqp%-lock%-admin %l+", "%0 " .. (options or "")))
end

-- The process waits for a lock of this kind.
local function waiter(name, kind, label)
  local one = line.process(name, ("{ name = '%s' }"):format(label))
  one:run("of = require 'spec.support.kinds'.all[...].over", kind)
  one:begin("lock = assert(of(conn, ...):acquire{ timeout = 600, poll = 600 }) return true", name)
  return one
end

-- Runs `list` until its output has all the texts; returns the output.
local function until_listed(place, list, there)
  local output
  until_true(function()
    output = shell(place, list)
    for _, text in ipairs(there) do
      if not output:find(text, 1, true) then return nil, text .. " is not in\n" .. output end
    end
    return true
  end, SECONDS)
  return output
end

-- Returns the part of a line of JSON that tells this, in the order in which it is printed.
local function item(name, kind, state, what, holder)
  return ('"name":"%s","kind":"%s","state":"%s",%s"what":"%s","holder":"%s","since":'):format(name, kind, state,
    what:match "^slot" and ('"slot":%s,'):format(what:match "%d+") or "", what, holder)
end

after_each(function()
  command.clear()
  stage.clear()
end)
teardown(stage.check)

describe("amqp-lock-admin ls, by the line that it prints,", function()
  operated_it("shows who holds and who waits, of every kind", function()
    local name, place = stage.mutex(), tools(broker.suite)
    scene.name(name, true)
    stage.undo(function() stage.delete(gate.bell("read", name)) end)
    stage.undo(function() stage.delete(name .. "-fastmutex") end)
    stage.hang(name, 2)
    stage.add(name, 1, 2)
    local conn = stage.connect(nil, { name = "the holder" })
    stage.take(conn:semaphore(name))
    stage.take(conn:semaphore(name))
    local fast = stage.take(conn:fast_mutex(name))
    local mutex = stage.take(conn:mutex(name))
    gate.take("read", name, nil, conn)
    assert(conn:token_semaphore(name):resize(1))
    local permit = stage.take(conn:token_semaphore(name))
    local expected = {
      item(name, "slot", "holds", "slot 1", "the holder"), item(name, "slot", "holds", "slot 2", "the holder"),
      item(name, "slot", "waits", "waits", "waits for a slot"),
      item(name, "mutex", "holds", "mutex", "the holder"), item(name, "mutex", "waits", "waits", "waits for it"),
      item(name, "read", "holds", "reader", "the holder"),
      item(name, "write", "holds", "writer, waits for readers", "waits to write"),
      item(name, "rwlock", "waits", "waits", "waits to read"),
      item(name, "permit", "holds", "permit", "the holder"),
      item(name, "permit", "waits", "waits for a permit", "waits for a permit"),
      item(name, "fast_mutex", "holds", "fast mutex", "the holder"),
      item(name, "fast_mutex", "waits", "waits for the fast mutex", "waits for the fast one"),
      ('"name":"%s","kind":"semaphore","total":2,"free":0'):format(name),
      ('"name":"%s","kind":"token_semaphore","total":1,"free":0'):format(name),
    }
    waiter(name, "slot", "waits for a slot")
    waiter(name, "mutex", "waits for it")
    waiter(name, "permit", "waits for a permit")
    waiter(name, "fast_mutex", "waits for the fast one")
    waiter(name, "write", "waits to write")
    gate.until_held("write", name)
    waiter(name, "read", "waits to read")
    local list = printed(place, "ls", "--json-output --lock " .. name)
    local output = until_listed(place, list, expected)
    assert.equal(#expected, select(2, output:gsub("\n", "\n")), output)
    for _, lock in ipairs { mutex, permit, fast } do
      assert.is_truthy(output:find(('"ticket":"%s","connection":"<'):format(lock.ticket), 1, true))
    end
    for since in output:gmatch '"since":(%d+)' do assert.is_true(math.abs(since - os.time()) < 600) end
  end)
end)

describe("amqp-lock-admin holders, by the line that it prints,", function()
  operated_it("prints the command that closes the connection of a holder, and the next one has the lock", function()
    local name, place = gate.name(), tools(broker.suite)
    local conn = stage.connect(nil, { name = "it's hung" })
    local lock = gate.take("mutex", name, nil, conn)
    local next_one = waiter(name, "mutex", "next")
    local list = printed(place, "holders", "--lock " .. name)
    local output = until_listed(place, list, { lock.ticket })
    assert.is_truthy(output:find(("# %s, mutex: held by it's hung, since "):format(name), 1, true), output)
    assert.equal(1, select(2, output:gsub("rabbitmqctl", "")))
    shell(place, output)
    assert.is_true(next_one:finish(SECONDS))
    until_true(function() return not lock:held() end, SECONDS)
    stage.fails("lost", lock:held())
  end)
end)
