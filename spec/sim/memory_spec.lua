-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Out of memory: stories of one client of the model broker, in which the first allocation of the C module and
-- rabbitmq-c fails, then the second one, and so on until all have been tried; each time once that one alone, and (for
-- every third of them) once that one and all later ones. Every request succeeds, or fails with `no_memory`, or, if a
-- connection was given up, with the code of a lost connection. When the client is done nothing is left in the broker,
-- and no memory is leaked.
local Broker = require "spec.support.model.broker"
local Peer = require "spec.support.peer"
local Process = require "spec.support.model.process"
local World = require "spec.support.model.world"
local shortage = require "spec.support.shortage"

local unpack = table.unpack or unpack

-- The story's client ------------------------------------------------------------------------------------------------

local Client = {}
Client.__index = Client

-- A client that does what program(client) does, in a world of its own where `prepare` has been.
local function new_client(prepare)
  local world = World.new(1)
  local broker = Broker.new(world, { lags = 0.2 })
  local self = setmetatable({ world = world, broker = broker, codes = {} }, Client)
  if prepare then prepare(self) end
  self.process = Process.new(broker, "client", { seed = 1 })
  self.session = self.process.session
  return self
end

-- Runs a program in the client, or in another one.
local function run(self, program, one)
  local is_over
  one = one or self.process
  one:start(function ()
    program(self)
    is_over = true
  end)
  assert.is_true(self.world:run(300, function () return is_over end), "it comes to an end")
end

-- By somebody who has memory.
local function prepared(method, ...)
  local arguments = { ... }
  return function (self)
    local admin = Process.new(self.broker, "admin", { seed = 2 })
    run(self, function ()
      assert(admin:finish(admin.session[method](admin.session, unpack(arguments))))
      admin:finish(admin.session:close())
    end, admin)
    admin:bury()
  end
end

--- Waits for what a call has begun, if it could, and takes note of how it ended.
function Client:await(op, message, code)
  local result
  if op then result, message, code = self.process:finish(op) end
  if not result then table.insert(self.codes, { code = code, message = message }) end
  return result
end

local function cannot() return nil, "no_memory: it could not even be made", "no_memory" end

--- Makes something to be acquired. Where the library throws, as Lua does, returns something that cannot be.
function Client:make(kind, name, options)
  local fine, made = pcall(self.session.resource, self.session, kind, name, options or {})
  if fine then return self.process.peer:keep(made) end
  assert.equal("not enough memory", made)
  return { acquire = cannot, read = cannot, write = cannot }
end

--- Lets go of a lock, which is let go then, whether or not anybody can say when.
function Client:let_go(lock)
  if not lock then return end
  self:await(lock:verify())
  self:await(lock:release())
  assert.is_false((lock:held()))
  lock:drop()
  self.process:turn()
end

--- Somebody else has a queue for a while.
function Client:is_in_the_way(queue, key)
  local leave = self.broker:intrude(queue, key)
  self.world:after(0.3, function () leave() end)
end

-- What must hold ----------------------------------------------------------------------------------------------------

local EXPECTED = { no_memory = true, lost = true, not_held = true, closed = true }

-- The first thing that goes wrong is the want of memory, by itself or in what it did to a connection.
local function look_at_codes(self)
  for i, failure in ipairs(self.codes) do
    local is_fine = i > 1 or failure.code == "no_memory" or failure.message:find("memory", 1, true)
    assert.is_true(is_fine and EXPECTED[failure.code] or i > 1, failure.message)
    assert.equal(failure.code .. ": ", failure.message:sub(1, #failure.code + 2))
  end
end

local function look_for_leftovers(self, when)
  for name, queue in pairs(self.broker.queues) do
    local _, unacked, consumers = self.broker:count(name)
    assert.is_nil(queue.owner, ("%s: %s is still claimed"):format(when, name))
    assert.same({ 0, 0 }, { unacked, consumers }, ("%s: somebody has messages of %s, or consumes"):format(when, name))
  end
end

-- One story, in which the nth allocation fails. Returns how many did.
local function tell(story, n, on)
  local self = new_client(story.prepare)
  shortage.c.arm(n, on)
  run(self, story.program)
  self.world:run(5)
  if not story.closes then look_for_leftovers(self, "when nobody wants anything") end
  run(self, function ()
    local closing = self.session:close()
    if closing then self.process:finish(closing) end
    self.session:abort()
  end)
  self.process:turn()
  local _, failed = shortage.disarm()
  self.process:bury()
  self.world:run(5)
  look_at_codes(self)
  look_for_leftovers(self, "when it was closed")
  assert.equal(0, #self.broker.connections)
  if story.check then story.check(self) end
  if failed == 0 then assert.same({}, self.codes) end
  return failed
end

-- Stories -----------------------------------------------------------------------------------------------------------

local SLOTS = prepared("administer", "create", "images", {}, 2)
local PERMITS = prepared("administer_tokens", "create", "licences", { queue_type = "classic" }, 1)
local QUORUM = prepared("administer_tokens", "create", "licences", { queue_type = "quorum" }, 1)

local function permits(queue_type)
  return function (self)
    local licences = self:make("token_semaphore", "licences", { queue_type = queue_type })
    local one = self:await(licences:acquire{ timeout = 1 })
    local other = self:await(licences:acquire{ timeout = 0 })
    if one and not other then table.remove(self.codes) end -- it was taken, or we are here for another reason
    self:let_go(other)
    self:let_go(one)
    self:let_go(self:await(licences:acquire{ timeout = 1, priority = 1 }))
  end
end

local stories = {
  ["a slot"] = { prepare = SLOTS, program = function (self)
    local images = self:make("semaphore", "images")
    local one = self:await(images:acquire{ timeout = 0 })
    self:is_in_the_way("images-2-B")
    local two = self:await(images:acquire{})
    if one then assert.is_boolean((one:held())) end
    self:let_go(one)
    self:let_go(two)
  end },
  ["a permit"] = { prepare = PERMITS, program = permits "classic" },
  ["a permit of a quorum queue, beside a mutex"] = { prepare = QUORUM, program = function (self)
    local lock = self:await(self:make("mutex", "db"):acquire{})
    permits "quorum"(self)
    self:let_go(lock)
  end },
  ["reading"] = { program = function (self)
    self:is_in_the_way("catalogue-writer")
    self:let_go(self:await(self:make("rwlock", "catalogue"):read{}))
  end },
  ["writing, and reading then"] = { program = function (self)
    self:is_in_the_way("catalogue-reader-0123456789abcdef", "catalogue-readers")
    local lock = self:await(self:make("rwlock", "catalogue"):write{})
    if lock then self:await(lock:downgrade()) end
    self:let_go(lock)
  end },
  ["administering slots"] = { program = function (self)
    for _, call in ipairs{ { "create", {}, 3 }, { "resize", { overshoot = 2 }, 5 }, { "remove", { revoke = true }, 3 },
      { "slots", {} }, { "status", {} }, { "repair", {} } } do
      self:await(self.session:administer(call[1], "images", unpack(call, 2)))
    end
    self:is_in_the_way("images-1-B")
    self:await(self.session:revoke("images", {}, 1))
    self:await(self.session:wait_released("images", {}, { 1, 2 }))
    self:await(self.session:administer("destroy", "images", {}))
  end },
  ["administering permits"] = { program = function (self)
    for _, call in ipairs{ { "create", {}, 2 }, { "add", {}, 2 }, { "remove", {}, 1 }, { "resize", {}, 5 },
      { "slots", {} }, { "repair", { wait = 10 } } } do
      self:await(self.session:administer_tokens(call[1], "licences", unpack(call, 2)))
    end
  end, check = function (self)
    local count, marks = self.broker:count("licences.semaphore"), self.broker:count("licences.semaphore-count")
    assert.is_true((count or 0) <= (marks or 0))
  end },
  ["closing with locks"] = { prepare = SLOTS, closes = true, program = function (self)
    self.process:keep(self:await(self:make("semaphore", "images"):acquire{ timeout = 1 }))
    self.process:keep(self:await(self:make("mutex", "db"):acquire{ timeout = 1 }))
    self.process:keep(self:make("mutex", "db"):acquire{})
  end },
}

describe("without memory", function ()
  setup(shortage.begin)
  teardown(shortage.over)
  after_each(shortage.disarm)

  for name, story in pairs(stories) do
    for how, on in pairs{ ["once"] = false, ["for good"] = true } do
      it(("%s, %s, at any point"):format(name, how), function ()
        local n, step = 0, on and not os.getenv "AMQPLOCKS_SOAK" and 3 or 1
        repeat
          n = n + step
          local failed = tell(story, n, on)
          shortage.look_for_leaks(failed, n)
        until failed == 0
        assert.is_true(n > 20, n .. " allocations")
      end)
    end
  end

  -- Asks for so much that what is to be written needs more room, more than once.
  it("writes nothing behind a frame that was left out", function ()
    local given_up, n = 0, 0
    local all, failed
    repeat
      n = n + 1
      local peer = Peer.open()
      shortage.c.arm(n)
      local made, many = pcall(peer.session.resource, peer.session, "semaphore", ("n"):rep(220), {})
      peer.kept[1] = made and many:acquire{} or nil
      peer.prober:pull()
      local written = {}
      for i, frame in ipairs(peer.prober.frames) do written[i] = frame.method or "content" end
      peer:tick()
      if peer.prober:state() ~= "down" then
        all = written
      else
        given_up = given_up + 1
        assert.is_true(#written < 66)
        assert.equal("confirm.select", written[2])
        for i = 3, #written do assert.equal(i % 2 == 1 and "basic.publish" or "content", written[i]) end
      end
      failed = select(2, shortage.disarm())
      peer.session:abort()
    until failed == 0
    assert.equal(66, #all)
    assert.is_true(given_up > 0)
  end)
end)
