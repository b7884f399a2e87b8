-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Runs the examples unchanged, each in a process of its own, and checks that they show what they claim. (Examples
-- described elsewhere are run there: readme_spec, revoke_spec.)
local broker = require "spec.support.broker"
local line = require "spec.support.line"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"

local operated_it = broker.operated_it(it, pending)

-- Starts one; gives its output, line by line, which ends with it. One that hangs is ended after five minutes.
local function start(words)
  local command = "exec timeout 300 %s examples/%s 2>&1"
  local pipe = assert(io.popen(command:format(os.getenv "LUA" or "lua5.4", words)))
  stage.undo(function() pipe:close() end)
  return pipe:lines()
end

-- Reads on until a line matches; gives what it captured, and all the lines up to there.
local function read_until(lines, pattern)
  local seen = {}
  for text in lines do
    table.insert(seen, text)
    if text:find(pattern) then return text:match(pattern), seen end
  end
  error(("no line %q in:\n%s"):format(pattern, table.concat(seen, "\n")), 2)
end

local function read_to_end(lines)
  local all = {}
  for text in lines do table.insert(all, text) end
  return all
end

after_each(stage.clear)
teardown(function() -- what the examples leave; the bells would go by themselves, a minute later
  for _, queue in ipairs { "producer-mutexbell", "account-savings-mutexbell", "account-current-mutexbell",
    "catalogue-rwbell", "edition-mutexbell", "edition-mutexfence", "image-link.semaphore",
    "image-link.semaphore-count" } do
    stage.delete(queue)
  end
end)

it("the jobs that take two locks lose no transfer, and do not wait for each other", function()
  assert.same({ "40 transfers, savings 100, current 100" }, read_to_end(start "settle.lua"))
end)

describe("the group of producers", function()
  it("has one active after the other, as they are killed", function()
    local active, order, killed, taken_over = nil, {}, 0, 0
    local all = read_to_end(start "producer.lua")
    local output = table.concat(all, "\n")
    for _, text in ipairs(all) do
      local who, pid, what = text:match "^(%u)\t(%d+)\t(.*)$"
      if what == "is active" then
        active = pid
        table.insert(order, who)
      elseif what then
        assert.equal(active, pid, output) -- nobody else sends
        assert.matches("^message %d$", what)
        if what == "message 3" then killed = killed + 1 end
      else
        assert.matches("^taken over %d+%.%d%d s after the last one was killed$", text)
        taken_over = taken_over + 1
      end
    end
    table.sort(order)
    assert.same({ "A", "B", "C" }, order, output)
    assert.same({ 3, 2 }, { killed, taken_over }, output)
  end)

  operated_it("has members that stand by, and stand by again when they have lost the mutex", function()
    local held = stage.take(stage.connect():mutex "producer")
    local lines = start "producer.lua D"
    -- the waiter stands at the bell, and the holder, for those that wait
    until_true(function() return select(2, line.at("producer", "producer-mutexbell")) == 2 end)
    assert.is_true(held:release())
    local pid = read_until(lines, "^D\t(%d+)\tis active$")
    stage.undo(function() os.execute("kill -s KILL " .. pid) end)
    read_until(lines, "^D\t" .. pid .. "\tmessage 1$")
    broker.suite:delete_queue "producer-mutex"
    read_until(lines, "^D\t" .. pid .. "\tlost: ")
    read_until(lines, "^D\t" .. pid .. "\tis active$")
  end)
end)

it("the examples that start several processes fail with a message where there is no broker", function()
  for _, example in ipairs { "catalogue", "fencing/run", "images", "producer" } do
    local pipe = assert(io.popen(("AMQP_URL=amqp://127.0.0.1:1 timeout 300 %s examples/%s.lua 2>&1; echo $?"):format(
      os.getenv "LUA" or "lua5.4", example)))
    local output = pipe:read "*a"
    pipe:close()
    assert.matches("unreachable: .*\n1\n$", output)
    assert.not_matches("together", output)
  end
end)

it("the catalogue has readers together, and writers alone", function()
  local other = assert(stage.connect():rwlock("catalogue"):read())
  local lines = start "catalogue.lua"
  local _, before = read_until(lines, "^writer%-%d\twaits: a reader holds the lock$")
  for _, text in ipairs(before) do assert.not_matches("begins to write", text) end
  assert.is_true(other:release())
  local after = table.concat(read_to_end(lines), "\n")
  assert.matches("\n6 editions, each written by one alone; up to [1-5] read together$", after)
  assert.equal(6, select(2, after:gsub("begins to write\n", "")), after)
end)

it("the image workers send no more images at a time than there are permits", function()
  local link = stage.connect():token_semaphore "image-link"
  assert.equal(2, link:resize(2))
  local first, second = stage.take(link), stage.take(link)
  local lines = start "images.lua"
  for _ = 1, 5 do
    local _, seen = read_until(lines, "^worker%-%d\thas resized image 1$")
    assert.equal(1, #seen, seen[1]) -- nobody sends
  end
  assert.is_true(first:release())
  local all = read_to_end(lines)
  assert.equal("15 images sent, at most 1 at a time, with 2 permits", all[#all])
  assert.is_true(second:release())
  all = read_to_end(start "images.lua")
  assert.matches("^15 images sent, at most [12] at a time, with 2 permits$", all[#all])
end)

it("a writer that was stopped overwrites the next one's file, and with fencing tokens it is refused", function()
  local lines = start "fencing/run.lua"
  local function reads(pattern) return (read_until(lines, pattern)) end

  reads "^without fencing tokens:$"
  reads "^  A holds the lock, token none, and is stopped before it writes$"
  reads "^  the store accepts B's edition, token none$"
  reads "^  A continues$"
  reads "^  the store accepts A's edition, token none$"
  assert.not_equal("released", reads "^  A ends: (.*)$")
  assert.equal("A", reads "^  the file has (%u)'s edition$")

  reads "^with fencing tokens:$"
  local first = reads "^  A holds the lock, token (%d+), and is stopped before it writes$"
  local second = reads "^  the store accepts B's edition, token (%d+)$"
  reads "^  A continues$"
  reads("^  the store refuses A's edition: token " .. first .. " is smaller than " .. second .. "$")
  assert.not_equal("released", reads "^  A ends: (.*)$")
  assert.equal("B", reads "^  the file has (%u)'s edition$")
  assert.same({}, read_to_end(lines))
end)
