-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Waiting where waiters declare the bell: for a mutex, to write, to read. holder_token_spec.lua is about the holder for
-- which they wait; hold/bell_spec.lua is about what waiters do at every bell.

local scene = require "spec.unit.locks.rwlock_scene"

-- How long a waiter leaves it to others when it sees it free, and then sees it free again.
local PATIENCE = { 0.035, 0.008, 0.008 }

local kinds = {
  { name = "mutex", what = "mutex", gate = "db-mutex", bell = "db-mutexbell", method = "acquire",
    words = 'mutex "db" did not come free within 2 s (it is held)' },
  { name = "reader", what = "rwlock", gate = "db-writer", bell = "db-rwbell", method = "read", is_shared = true,
    words = '"db" could not be locked for reading within 2 s (a writer holds the lock, or waits for it)' },
}

for _, kind in ipairs(kinds) do
  describe("waiting for a " .. kind.name, function ()
    local peer, resource

    local function open(...) peer, resource = scene.open(kind.what, ...) end

    before_each(function () open() end)

    local function begin(...) return resource[kind.method](resource, ...) end
    local function sees(state) scene.looks(peer, kind.gate, state, true) end
    local function makes_bell() return scene.makes_bell(peer, kind.bell) end

    -- It is free, and had for good. A client that has come to a bell leaves it, or (with a token, for a reader) gives
    -- that back.
    local function has_it(op, bell, token)
      scene.replies(peer, kind.is_shared and scene.reader(peer) or scene.claim(peer, kind.gate))
      if token and kind.is_shared then scene.returns(peer, bell, token) end
      if bell and not token then scene.cancels(peer, bell) end
      assert.is_true(peer:result(op):held())
      peer:silent()
    end

    -- The first look, and all that follows it until the bell is there and the waiter at it. Returns op, bell.
    local function arrives(...)
      local op = begin(...)
      peer.holder:silent()
      scene.finds_held(peer, kind.gate)
      return op, makes_bell()
    end

    -- At rest. Returns op, bell.
    local function wait(...)
      local op, bell = arrives(...)
      scene.welcome(peer, bell)
      sees("held")
      peer:silent()
      assert.is_false(op:done())
      return op, bell
    end

    it("makes the bell at once if it has to wait for others in any case: fair", function ()
      local op = begin(60, true)
      scene.welcome(peer, makes_bell())
      scene.finds_held(peer, kind.gate, true)
      sees("held") -- the bell may not have been there when somebody rang
      peer:silent()
      assert.is_false(op:done())
    end)

    it("finds it free, which nobody could ring for: leaves it to others for a while, a reader does not", function ()
      local op, bell = arrives(60)
      scene.welcome(peer, bell)
      for _, seconds in ipairs(kind.is_shared and {} or PATIENCE) do
        sees("free")
        peer:silent()
        peer:pass(seconds)
      end
      sees("free")
      has_it(op, bell)
    end)

    it("finds it free and nobody else at the bell, and takes it at once", function ()
      local op, bell = arrives(60)
      scene.welcome(peer, bell, true)
      sees("free")
      has_it(op, bell)
    end)

    for poll, seconds in pairs{ [2] = 2, [20] = 5 } do
      it(("whose bell does not answer looks by itself: after a poll of %d s, or the timeout of 5 s"):format(poll),
        function ()
          local op, bell = arrives(nil, false, nil, poll)
          peer:pass(seconds - 0.001)
          peer:silent()
          peer:pass(0.001)
          peer.holder:closes(bell.channel)
          sees("held")
          peer:silent()
          assert.equal(1, #peer:news('"' .. kind.bell .. '"'))
          assert.is_false(op:done())
        end)
    end

    it("at rest has the bell deleted under it: makes another one, and looks until that is there", function ()
      local op, bell = wait(60)
      scene.is_robbed(peer, bell)
      local again = makes_bell()
      local probe = scene.asks(peer, kind.gate, true)
      scene.welcome(peer, again)
      peer.prober:answer({ probe }, { kind.gate })
      sees("held") -- somebody may have rung when there was no bell
      peer:silent()
      local token = scene.deliver(peer, again)
      sees("free")
      has_it(op, again, token)
    end)

    it("at rest says that it is free, and what becomes of that, and nothing of others where there are none", function ()
      local op, bell = arrives(60)
      scene.welcome(peer, bell, true)
      sees("held")
      scene.deliver(peer, bell)
      sees("free")
      assert.equal(kind.is_shared and "no writer holds the lock, and it is being claimed"
        or "it is free, and being claimed", select(2, op:waiting()))
    end)

    it("at rest has no more time, or is abandoned: consumes no longer, and says why", function ()
      for _, is_abandoned in ipairs{ false, true } do
        open()
        local op, bell = wait(2)
        if is_abandoned then op:drop() else peer:pass(2) end
        if not is_abandoned then peer:failed(op, "timeout", kind.words) end
        scene.cancels(peer, bell)
        peer:silent()
        scene.all_channels_are_back(peer)
      end
    end)
  end)
end

it("a writer that waited in line gives up, and gives its token back when the door is open again", function ()
  local DOOR, BELL = "db-writer", "db-rwbell"
  local peer, rwlock = scene.open("rwlock")
  local op = rwlock:write(2)
  scene.finds_held(peer, DOOR)
  local bell = scene.makes_bell(peer, BELL)
  scene.welcome(peer, bell)
  scene.looks(peer, DOOR, "held", true)
  assert.equal("another writer holds the lock, or waits for it", select(2, op:waiting()))
  local token = scene.deliver(peer, bell)
  local door = scene.shuts(peer, DOOR, true)
  scene.makes_sure(peer, door, "reader")
  peer:silent()
  assert.equal("a reader holds the lock", select(2, op:waiting()))
  peer:pass(2)
  peer:failed(op, "timeout", "a reader holds the lock")
  peer.holder:delete(DOOR, door.channel)
  scene.returns(peer, bell, token)
  peer:silent()
  scene.all_channels_are_back(peer)
end)
