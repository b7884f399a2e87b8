-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Waiting where waiters declare the bell: for a mutex, to write, to read. holder_token_spec.lua is about the holder for
-- which they wait; bell_spec.lua is about waiters at every bell.

local Peer = require "spec.support.peer"
local scene = require "spec.unit.locks.rwlock_scene"

local unpack = table.unpack or unpack

-- How long a waiter leaves it to others when it sees it free, and then sees it free again.
local PATIENCE = { 0.035, 0.008, 0.008 }

local kinds = {
  { name = "mutex", what = "mutex", gate = "db-mutex", bell = "db-mutexbell", method = "acquire" },
  { name = "writer", what = "rwlock", gate = "db-writer", bell = "db-rwbell", method = "write" },
  { name = "reader", what = "rwlock", gate = "db-writer", bell = "db-rwbell", method = "read", is_shared = true },
}

for _, way in ipairs(Peer.all_ways) do
  for _, kind in ipairs(kinds) do
    describe(("waiting for a %s, fed %s,"):format(kind.name, way), function ()
      local peer, resource

      local function open(...) peer, resource = scene.open(way, kind.what, ...) end

      before_each(function () open() end)

      local function silent() scene.silent(peer) end
      local function begin(...) return resource[kind.method](resource, ...) end
      local function sees(state, waits) scene.looks(peer, kind.gate, state, waits ~= false) end
      local function makes_bell(priority) return scene.makes_bell(peer, kind.bell, priority) end

      -- It is free, and had. Returns the claim, which is granted.
      local function claims()
        local claim = kind.is_shared and scene.reader(peer) or scene.claim(peer, kind.gate)
        scene.replies(peer, claim)
        return claim
      end

      -- Whether people are told of the bell.
      local function is_noted()
        for _, note in function () return peer.session:news() end do
          if note:find('"' .. kind.bell .. '"', 1, true) then return true end
        end
      end

      -- What is had is had for good. Returns the lock.
      local function gets(op, claim)
        if kind.name == "writer" then scene.makes_sure(peer, claim) end
        local lock = peer:result(op)
        assert.is_true(lock:held())
        return lock
      end

      -- Let go, and gone. The token, if it has one, goes back then and no sooner; otherwise it is rung for.
      local function goes(lock, claim, bell, token)
        lock:release()
        local channel = peer.holder:delete(claim.queue)
        assert.equal(claim.channel, channel)
        if kind.is_shared then
          scene.rings(peer, kind.gate)
        elseif token then
          scene.returns(peer, bell, token)
        else
          scene.rings(peer, kind.bell)
        end
        silent()
      end

      -- Free for who has no token: had, and let go again.
      local function has_it(op, bell)
        local claim = claims()
        scene.cancels(peer, bell)
        goes(gets(op, claim), claim)
      end

      -- Free for who has a token: had, and let go again. A reader gives the token back before it is in.
      local function has_its_turn(op, bell, token)
        sees("free")
        local claim = claims()
        if kind.is_shared then scene.returns(peer, bell, token) end
        peer.holder:silent()
        goes(gets(op, claim), claim, bell, token)
      end

      -- The first look, and all that follows it until the bell is there and the waiter at it. Returns op.
      local function arrives(...)
        local op = begin(...)
        scene.finds_held(peer, kind.gate)
        return op, makes_bell(select(3, ...))
      end

      -- At rest. Returns op, bell.
      local function wait(...)
        local op, bell = arrives(...)
        scene.welcome(peer, bell)
        sees("held")
        silent()
        assert.is_false(op:done())
        return op, bell
      end

      -- At the bell without a look before. Returns op, bell.
      local function arrives_fairly(timeout)
        local op = begin(timeout, true)
        local bell = makes_bell()
        scene.welcome(peer, bell)
        return op, bell
      end

      -- Free for all the time that it is left to others, by one without a token.
      local function is_patient()
        if kind.is_shared then
          sees("free")
          return
        end
        for _, seconds in ipairs(PATIENCE) do
          sees("free")
          silent()
          peer:pass(seconds)
        end
        sees("free")
      end

      describe("arriving:", function ()
        it("makes the bell when it has to wait, not before, and looks once more when it is there", function ()
          local op = begin()
          peer.holder:silent()
          scene.finds_held(peer, kind.gate)
          local bell = makes_bell()
          silent()
          peer.holder:declared(bell.channel, bell.queue)
          silent()
          peer.holder:consumed(bell)
          sees("held")
          silent()
          assert.is_false(op:done())
        end)

        it("with its priority", function () wait(60, false, 7) end)

        it("makes none if it may not wait", function ()
          local op = begin(0)
          scene.finds_held(peer, kind.gate)
          peer:failed(op, "busy")
          silent()
        end)

        it("at once if it has to wait for others in any case: fair", function ()
          local op = arrives_fairly(60)
          scene.finds_held(peer, kind.gate, true)
          -- The bell may not have been there when somebody rang.
          sees("held")
          silent()
          assert.is_false(op:done())
        end)

        it("finds it free, which nobody could ring for", function ()
          local op, bell = arrives(60)
          scene.welcome(peer, bell)
          is_patient()
          has_it(op, bell)
          scene.all_channels_are_back(peer)
        end)

        for _, fair in ipairs{ false, true } do
          it("finds it free and nobody else at the bell, and takes it at once" .. (fair and ": fair" or ""), function ()
            local op = begin(60, fair)
            local bell
            if fair then
              bell = makes_bell()
              sees("free")
              silent()
            else
              scene.finds_held(peer, kind.gate)
              bell = makes_bell()
            end
            scene.welcome(peer, bell, true)
            sees("free")
            has_it(op, bell)
            scene.all_channels_are_back(peer)
          end)
        end

        it("is given a token before consume-ok", function ()
          local op, bell = arrives(60)
          peer.holder:declared(bell.channel, bell.queue)
          local token = scene.deliver(peer, bell)
          silent()
          peer.holder:consumed(bell)
          has_its_turn(op, bell, token)
          scene.all_channels_are_back(peer)
        end)

        it("loses the connection: unreachable, at once", function ()
          local op = arrives(60)
          peer.holder:down("timed out")
          peer:failed(op, "unreachable", "timed out")
        end)

        it("loses the prober: looks on another one", function ()
          local op, bell = arrives(60)
          peer.prober:down("timed out")
          scene.welcome(peer, bell)
          assert.is_false(op:done())
          peer:pass(1)
          peer.prober:handshake()
          sees("held")
          silent()
        end)

        for text, give_up in pairs{
          ["is abandoned"] = function (op) op:drop() end,
          ["has no more time"] = function (op)
            peer:pass(2)
            peer:failed(op, "timeout", "within 2 s")
          end,
          ["goes with the session"] = function (op)
            peer.session:close()
            peer:failed(op, "closed")
          end,
        } do
          it(text .. ": nothing is cancelled before consume-ok, its channel is closed", function ()
            local op, bell = arrives(2)
            give_up(op)
            peer.holder:expect("channel.close", { channel = bell.channel })
            if text:find("session") then
              peer.holder:expect("connection.close")
              return
            end
            scene.welcome(peer, bell)
            scene.deliver(peer, bell)
            peer.holder:send{ channel = bell.channel, method = "channel.close-ok" }
            silent()
            scene.all_channels_are_back(peer)
          end)
        end
      end)

      describe("where the bell does not answer,", function ()
        for poll, seconds in pairs{ [2] = 2, [20] = 5 } do
          it(("looks by itself: after a poll of %d s, or the timeout of 5 s"):format(poll), function ()
            local op, bell = arrives(nil, false, nil, poll)
            peer:pass(seconds - 0.001)
            silent()
            peer:pass(0.001)
            peer.holder:closes(bell.channel)
            sees("held")
            silent()
            assert.is_true(is_noted())
            assert.is_false(op:done())
          end)
        end

        it("takes what is free, does not keep the bell, and asks for it no more, for a while", function ()
          local op, bell = arrives(nil, false, nil, 1)
          peer:pass(1)
          peer.holder:closes(bell.channel)
          for round = 1, 2 do
            sees("free", round == 1 or not kind.is_shared)
            local claim = claims()
            local lock = gets(op, claim)
            scene.tell(peer, claim, "amqplocks.waiting")
            silent()
            goes(lock, claim)
            if round == 1 then op = begin(60) end
          end
          scene.all_channels_are_back(peer)
        end)
      end)

      describe("where the bell is refused", function ()
        local refusals = {
          { "queue.declare", 403, scene.DENIED }, { "queue.declare", 405, "RESOURCE_LOCKED" },
          { "queue.declare", 406, "PRECONDITION_FAILED - inequivalent arg 'x-expires'" },
          { "basic.consume", 403, scene.DENIED }, { "basic.consume", 404, "NOT_FOUND - no queue" },
        }
        for _, refusal in ipairs(refusals) do
          local method, reply, text = unpack(refusal)
          it(("(%s, %d): looks once more, and then from time to time; people are told"):format(method, reply),
            function ()
              local op, bell = arrives(60)
              while peer.session:news() do end
              if method ~= "queue.declare" then peer.holder:declared(bell.channel, bell.queue) end
              peer.holder:refuse(bell.channel, reply, text, method)
              sees("held")
              silent()
              assert.is_true(is_noted())
              peer:pass(5)
              sees("free")
              local claim = claims()
              goes(gets(op, claim), claim)
              scene.all_channels_are_back(peer)
            end)
        end

        it("asks for it again after a minute", function ()
          local op, bell = arrives(nil, false, nil, 20)
          peer.holder:refuse(bell.channel, 403, scene.DENIED, "queue.declare")
          for _ = 1, 3 do
            sees("held")
            peer.holder:ignore()
            peer:pass(20)
            peer.prober:send{ channel = 0, heartbeat = true }
            peer.holder:send{ channel = 0, heartbeat = true }
            if peer.prober:next() == "heartbeat" then peer.prober:expect("heartbeat") end
          end
          while peer.holder:next() == "heartbeat" do peer.holder:expect("heartbeat") end
          makes_bell()
          assert.is_false(op:done())
        end)

        it("as no channel is left for it: looks from time to time", function ()
          open(nil, nil, { channel_max = 2 })
          local one, claim = peer:acquire("one")
          peer:acquire("two")
          local op = begin(60)
          sees("held", false)
          for _ = 1, 2 do
            silent()
            peer:pass(5)
            sees("held")
          end
          one:drop()
          peer.holder:delete("one-1-B", claim.channel)
          peer:pass(5)
          makes_bell()
          assert.is_false(op:done())
        end)
      end)

      describe("at rest:", function ()
        it("is woken by a token, looks, and takes what it finds", function ()
          local op, bell = wait(60)
          local token = scene.deliver(peer, bell)
          has_its_turn(op, bell, token)
          scene.all_channels_are_back(peer)
        end)

        it("is woken by nothing but a token, and acknowledges anything else away", function ()
          local _, bell = wait(60)
          for _, properties in ipairs{ {}, { type = "spam" }, { type = "amqplocks.waiting" } } do
            local tag = scene.deliver(peer, bell, properties)
            peer.holder:expect("basic.ack", { channel = bell.channel, delivery_tag = tag })
            silent()
          end
        end)

        it("is woken before it is free: looks again and again, with the token in hand", function ()
          local op, bell = wait(60)
          local token = scene.deliver(peer, bell)
          sees("held")
          silent()
          peer:pass(0.002)
          sees("held")
          peer:pass(0.004)
          has_its_turn(op, bell, token)
        end)

        it("is woken for nothing: throws the token away after two seconds, and is first in line again", function ()
          local op, bell = wait(60)
          local token = scene.deliver(peer, bell)
          local thrown = peer.now
          peer:live(4, function ()
            if peer.prober:next() == "basic.publish" then sees("held") end
            return peer.holder:next() ~= "nothing"
          end)
          assert.is_true(peer.now - thrown >= 2)
          peer.holder:expect("basic.cancel", { channel = bell.channel, consumer_tag = bell.tag, no_wait = false })
          peer.holder:expect("basic.ack", { channel = bell.channel, delivery_tag = token })
          local consume = peer.holder:expect("basic.consume", { channel = bell.channel, queue = kind.bell })
          assert.same({ ["x-priority"] = 1 }, (select(2, peer:signed(consume.arguments))))
          peer.holder:send{ channel = bell.channel, method = "basic.cancel-ok", consumer_tag = bell.tag }
          peer.holder:consumed{ channel = bell.channel, tag = consume.consumer_tag }
          silent()
          assert.is_false(op:done())
        end)

        it("loses a race, and looks again with the token it has", function ()
          local op, bell = wait(60)
          local token = scene.deliver(peer, bell)
          sees("free")
          local lost = kind.is_shared and scene.reader(peer) or scene.claim(peer, kind.gate)
          if kind.is_shared then scene.replies(peer, lost, 1, 2) end
          peer.holder:refuse(lost.channel, 405, scene.LOCKED, kind.is_shared and "queue.delete" or "queue.declare")
          if kind.is_shared then
            peer.holder:delete(lost.queue, peer.holder:opened())
            scene.rings(peer, kind.gate)
          end
          silent()
          peer:pass(0.01)
          has_its_turn(op, bell, token)
        end)

        it("looks by itself once in a poll, with the word that it waits", function ()
          local op, bell = wait()
          local looks, last = 0, peer.now
          peer:live(22, function ()
            if peer.prober:next() == "nothing" then return end
            looks = looks + 1
            assert.is_true(peer.now - last >= 4.3749 and peer.now - last <= 5.0001, "after " .. peer.now - last)
            last = peer.now
            sees("held")
            silent()
          end)
          assert.equal(4, looks)
          peer:pass(5)
          is_patient()
          has_it(op, bell)
        end)

        it("looks by passive declares under an alarm", function ()
          local op, bell = wait(60)
          scene.alarm(peer)
          silent()
          local token = scene.deliver(peer, bell)
          scene.looks_passively(peer, kind.gate, true)
          peer:pass(0.002)
          scene.looks_passively(peer, kind.gate, false)
          local claim = claims()
          if kind.name == "writer" then
            peer:failed(op, "blocked")
            peer.holder:delete(claim.queue, claim.channel)
            scene.returns(peer, bell, token)
          else
            if kind.is_shared then scene.returns(peer, bell, token) end
            gets(op, claim)
          end
          silent()
        end)

        it("does not mind losing the prober", function ()
          local op, bell = wait(60)
          peer.prober:down("timed out")
          assert.is_false(op:done())
          local token = scene.deliver(peer, bell)
          peer:pass(1)
          peer.prober:handshake()
          has_its_turn(op, bell, token)
        end)

        it("loses the connection: unreachable, at once", function ()
          for _, has_token in ipairs{ false, true } do
            open()
            local op, bell = wait(60)
            if has_token then
              scene.deliver(peer, bell)
              sees("held")
            end
            peer.holder:down("timed out")
            peer:failed(op, "unreachable", "timed out")
            peer.prober:silent()
          end
        end)

        it("has the bell deleted under it: makes another one, and looks until that is there", function ()
          local op, bell = wait(60)
          scene.is_robbed(peer, bell)
          local again = makes_bell()
          local probe = scene.asks(peer, kind.gate, true)
          scene.welcome(peer, again)
          peer.prober:answer({ probe }, { kind.gate })
          sees("held") -- somebody may have rung when there was no bell
          silent()
          local token = scene.deliver(peer, again)
          has_its_turn(op, again, token)
        end)

        it("has its channel closed under it: the same", function ()
          local op, bell = wait(60)
          scene.deliver(peer, bell)
          sees("held")
          peer.holder:refuse(bell.channel, 406, "PRECONDITION_FAILED - delivery acknowledgement timed out")
          local again = makes_bell()
          sees("held")
          scene.welcome(peer, again)
          sees("held")
          silent()
          assert.is_false(op:done())
        end)

        it("says for what it waits, and for how long", function ()
          local op = wait(60)
          peer:pass(3)
          local seconds, reason = op:waiting()
          assert.is_true(math.abs(seconds - 3) < 1e-6)
          local reasons = { mutex = "it is held", writer = "another writer holds the lock, or waits for it",
            reader = "a writer holds the lock, or waits for it" }
          assert.equal(reasons[kind.name], reason)
        end)

        it("says that it is free, and what becomes of that, and nothing of others where there are none", function ()
          local op, bell = arrives(60)
          scene.welcome(peer, bell, true)
          sees("held")
          scene.deliver(peer, bell)
          sees("free")
          local reasons = { mutex = "it is free, and being claimed",
            writer = "the write lock is free, and being claimed",
            reader = "no writer holds the lock, and it is being claimed" }
          assert.equal(reasons[kind.name], select(2, op:waiting()))
          local claim = claims()
          if kind.name == "writer" then
            assert.equal("this writer keeps new readers out, and counts the readers that still hold the lock",
              select(2, op:waiting()))
          end
          gets(op, claim)
        end)

        it("says that it leaves it to others, where there may be any", function ()
          if kind.is_shared then return end -- nobody is left anything
          local op = wait(60)
          peer:pass(5)
          sees("free")
          local subject = kind.name == "mutex" and "it" or "the write lock"
          assert.equal(subject .. " is free, and left to waiters that may have come first", select(2, op:waiting()))
          peer:pass(0.035)
          assert.equal(subject .. " was free at the last search", select(2, op:waiting()))
        end)

        for text, give_up in pairs{
          ["is abandoned"] = function (op) op:drop() end,
          ["has no more time"] = function (op)
            peer:pass(2)
            local message = peer:failed(op, "timeout", "within 2 s")
            local words = { mutex = 'timeout: mutex "db" did not come free within 2 s (it is held)',
              writer = 'timeout: "db" could not be locked for writing within 2 s ' ..
                '(another writer holds the lock, or waits for it)',
              reader = 'timeout: "db" could not be locked for reading within 2 s ' ..
                '(a writer holds the lock, or waits for it)' }
            assert.equal(words[kind.name], message)
          end,
          ["goes with the session"] = function (op)
            peer.session:close()
            peer:failed(op, "closed")
          end,
        } do
          it(text .. ": consumes no longer, and gives back what it has", function ()
            for _, has_token in ipairs{ false, true } do
              open()
              local op, bell = wait(2)
              local token = has_token and scene.deliver(peer, bell)
              if has_token then sees("held") end
              give_up(op)
              if token then scene.returns(peer, bell, token) else scene.cancels(peer, bell) end
              if text:find("session") then
                peer.holder:expect("connection.close")
              else
                silent()
                scene.all_channels_are_back(peer)
              end
            end
          end)
        end

        if not kind.is_shared then
          it("gives up while it claims: rings when that is gone, or gives its token back",
            function ()
              for _, has_token in ipairs{ false, true } do
                open()
                local op, bell = wait(60)
                local token = has_token and scene.deliver(peer, bell)
                if not has_token then peer:pass(5) end
                if has_token then sees("free") else is_patient() end
                local claim = scene.claim(peer, kind.gate)
                op:drop()
                peer.holder:expect("queue.delete", { queue = kind.gate, channel = claim.channel })
                if not token then scene.cancels(peer, bell) end
                silent()
                scene.replies(peer, claim)
                peer.holder:deleted(claim.channel)
                if token then scene.returns(peer, bell, token) else scene.rings(peer, kind.bell) end
                silent()
                scene.all_channels_are_back(peer)
              end
            end)
        end
      end)

      if kind.name == "writer" then
        it("behind the door: keeps its token until the door is open again, also when it gives up", function ()
          for _, gives_up in ipairs{ false, true } do
            open()
            local op, bell = wait(2)
            local token = scene.deliver(peer, bell)
            sees("free")
            local door = claims()
            scene.makes_sure(peer, door, "reader")
            silent()
            if gives_up then
              peer:pass(2)
              peer:failed(op, "timeout", "a reader holds the lock")
              peer.holder:delete(kind.gate, door.channel)
              scene.returns(peer, bell, token)
              silent()
            else
              scene.tell(peer, door, "amqplocks.token")
              scene.count(peer)
              goes(gets(op, door), door, bell, token)
            end
            scene.all_channels_are_back(peer)
          end
        end)

        it("behind the door, which is deleted: its token goes back, and it lines up again", function ()
          local op, bell = wait(60)
          local token = scene.deliver(peer, bell)
          sees("free")
          local door = claims()
          scene.makes_sure(peer, door, "reader")
          scene.is_robbed(peer, door)
          scene.returns(peer, bell, token)
          peer:pass(0.01)
          local again = makes_bell()
          scene.welcome(peer, again)
          sees("held")
          if peer.prober:next() ~= "nothing" then sees("held") end
          silent()
          assert.is_false(op:done())
        end)
      end

      if kind.is_shared then
        it("behind others who wait: is let in as soon as it sees the door open, without patience, unless it is fair",
          function ()
            local op, bell = wait(60)
            peer:pass(5)
            sees("free")
            has_it(op, bell)
          end)
      end

      if kind.is_shared then
        it("having waited lately: does not line up before it has to", function ()
          local op, bell = wait(2)
          peer:pass(2)
          peer:failed(op, "timeout")
          scene.cancels(peer, bell)
          op = begin(60)
          peer.holder:silent()
          sees("free", false)
          gets(op, claims())
        end)
      end

      describe("fair:", function ()
        it("rings for whoever is first when it has seen it free for 100 ms, and waits for its turn", function ()
          local op = arrives_fairly(60)
          for _, seconds in ipairs{ 0.1, 0.008, 0.008 } do
            sees("free")
            silent()
            peer:pass(seconds)
          end
          sees("free")
          scene.rings(peer, kind.bell)
          assert.is_false(op:done())
          peer.prober:ignore() -- it may look once more
        end)

        it("takes what it finds with a token at once", function ()
          local op, bell = arrives_fairly(60)
          local token = scene.deliver(peer, bell)
          has_its_turn(op, bell, token)
        end)

        it("and looking once: makes the bell, and is busy in the end", function ()
          local op, bell = arrives_fairly(0)
          scene.finds_held(peer, kind.gate, true)
          peer:failed(op, "busy")
          scene.cancels(peer, bell)
          silent()
        end)
      end)
    end)
  end
end
