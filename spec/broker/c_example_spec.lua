-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The example programs in C, without Lua, built against the library as users build them: without faults and with
-- faults.
local process = require "spec.support.process"
local program = require "spec.support.program"
local proxy = require "spec.support.proxy"
local stage = require "spec.support.stage"
local until_true = require "spec.support.until"
local values = require "spec.support.programs.values"

local URL, WRONG = os.getenv "AMQP_URL", os.getenv "AMQP_URL":gsub("//.-@", "//guest:wrong@")
local worker, steps

setup(function()
  worker = program.build("examples/c/worker.c", "amqplocks")
  steps = program.build("examples/c/steps.c", "amqplocks")
end)
stage.tidy(program.clear)
teardown(program.remove)

local function start(which, url, ...)
  return program.start({ AMQP_URL = url, LD_LIBRARY_PATH = program.LIB }, which, ...)
end

-- It ends with this status, and its output matches.
local function ends(one, status, words)
  local got, output = one:wait()
  assert.equal(status, got, output)
  assert.matches(words, output)
end

describe("a worker in C", function()
  -- One that works until it is told otherwise.
  local function working(name, url)
    local one = start(worker, url, name, "1000")
    one:await("working in slot 1 of \"" .. name:gsub("%p", "%%%0") .. "\"")
    stage.fails("busy", stage.connect():semaphore(name):try_acquire())
    return one
  end

  it("takes a slot, works, and lets go; makes the semaphore as large as it is told", function()
    local name = stage.semaphore(1)
    for _, words in ipairs { { 1, "0" }, { 3, "0", "3" }, { 1, "0", "1" } } do
      ends(start(worker, URL, name, values.unpack(words, 2)), 0, '^working in slot 1 of "[^\n]+"\ndone\n$')
      assert.equal(words[1], stage.connect():admin(name):slots())
      assert.is_true(stage.free(name, 1))
    end
  end)

  it("holds it, on the next node that its URL names, until it is asked to end, or knows that it is lost", function()
    local name, between = stage.semaphore(1), proxy.start()
    local one = working(name, (URL:gsub("@", "@127.0.0.1:1,")))
    one:signal "TERM"
    ends(one, 0, "\ndone\n$")
    assert.is_true(stage.free(name, 1))
    one = working(name, between.url)
    between:cut(1)
    ends(one, 2, "\nworker: lost: ")
    stage.until_free(name, 1)
  end)

  it("waits for a slot until it comes free, or until it is asked to end, and leaves nothing then", function()
    local name = stage.semaphore(1)
    local held = stage.occupy(name, 1)
    local one = start(worker, URL, name, "1000")
    held:await_looks(1)
    one:signal "INT"
    ends(one, 1, "^worker: interrupted\n$")
    one = start(worker, URL, name, "1000")
    held:await_looks(2)
    assert.equal("", one:output())
    held:release()
    stage.ring(name, 1)
    one:await "working in slot 1"
    one:signal "KILL"
    assert.equal(128 + 9, (one:wait()))
    stage.until_free(name, 1)
  end)
end)

describe("a job in C, step by step,", function()
  local function free(name) assert(stage.connect():mutex(name):try_acquire()):release() end

  local function at_work(name, url)
    local one = start(steps, url or URL, name, "100000")
    one:await("^working\n")
    stage.fails("busy", stage.connect():mutex(name):try_acquire())
    return one
  end

  it("begins before there is a broker, does its steps, and releases the mutex", function()
    local name, between = stage.mutex(), proxy.shut()
    local one = start(steps, between.url, name, "3")
    between:open()
    ends(one, 0, "^working\n$")
    free(name)
  end)

  it("stops between two steps at a signal, or when it is asked for the mutex, or has lost it", function()
    local name, between = stage.mutex(), proxy.start()
    for _, stop in ipairs {
      function(one) one:signal "TERM" end,
      function() assert.is_true(stage.connect():mutex(name):revoke { wait = 60 }) end,
    } do
      local one = at_work(name)
      stop(one)
      ends(one, 3, "\nsteps: after %d+ of 100000: stopped\n$")
      free(name)
    end
    local one = at_work(name, between.url)
    between:cut(1)
    ends(one, 2, "\nsteps: after %d+ of 100000: lost\n")
  end)

  it("stops while it waits", function()
    local name = stage.mutex()
    local held = stage.take(stage.connect():mutex(name))
    local one = start(steps, URL, name, "1")
    until_true(function() return stage.client():exists(name .. "-mutexbell") end)
    one:signal "TERM"
    ends(one, 1, "^steps: stopped while it waited\n$")
    assert(held:release())
    free(name)
  end)
end)

it("the examples in C say what is wrong", function()
  local name = stage.semaphore(1)
  for words, row in pairs {
    ["^worker: usage: "] = { worker, URL, name }, ["^worker: auth: "] = { worker, WRONG, name, "0" },
    ["^worker: not_found: "] = { worker, URL, name .. "-none", "0" },
    ['^worker: the name starts with "amq%."'] = { worker, URL, "amq.none", "0" },
    ["^worker: url: the URL does not begin with amqp://"] = { worker, "http://localhost", name, "0" },
    ["^worker: unreachable: none of 2 hosts: no broker at 127.0.0.1:1; no broker at 127.0.0.1:2\n"] =
      { worker, "amqp://127.0.0.1:1,127.0.0.1:2", name, "0" },
    ["^steps: usage: steps NAME COUNT\n$"] = { steps, URL, "only a name" },
    ['^steps: the name starts with "amq%."'] = { steps, URL, "amq.none", "1" },
    ["^steps: url: the URL does not begin"] = { steps, "http://localhost", "none", "1" },
    ["^steps: auth: "] = { steps, WRONG, "none", "1" },
  } do
    ends(start(values.unpack(row)), 1, words)
  end
end)

describe("docs/embedding.md", function()
  local function build(text, how)
    local path = program.place() .. "/embedding.c"
    process.write(path, text .. "\n")
    return program.build(path, "amqplocks", how)
  end

  it("has a first program that works, also when all of it is linked statically", function()
    local name = stage.semaphore(1)
    local text = assert(process.contents "docs/embedding.md"):match "```c\n(#include.-)\n```\n"
    text = text:gsub("amqp://guest:guest@localhost", (URL:gsub("%%", "%%%%"))):gsub('"images"', ('"%s"'):format(name))
    for _, static in ipairs(program.sanitized and { false } or { false, true }) do
      local status, output = program.run({ LD_LIBRARY_PATH = program.LIB }, (build(text, { static = static })))
      assert.same({ 0, "in slot 1\n" }, { status, output })
      assert.is_true(stage.free(name, 1))
    end
  end)

  it("waits for a child and its lock at once, as it says", function()
    local text = assert(process.contents "docs/embedding.md"):match "\n  ```c\n(.-)\n  ```\n"
    build("#include <amqplocks.h>\nvoid wait_for(al_session *, al_lock *, int);\n"
      .. "void wait_for(al_session *session, al_lock *lock, int child) {\n" .. text
      .. "\n}\nint main(void) { return 0; }\n")
  end)
end)
