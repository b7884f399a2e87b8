-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The stories (simulated runs) of spec/support/model/stories.lua, some seeds of each; with AMQPLOCKS_SOAK=1 a hundred
-- times as many. The seed decides everything in a story; `make prove-sim` plays new seeds.
local Crowd = require "spec.support.model.crowd"
local process = require "spec.support.process"
local stories = require "spec.support.model.stories"

local unpack = table.unpack or unpack

local TIMES = os.getenv "AMQPLOCKS_SOAK" and 100 or 1
stories.hurry()

local function play(story, seed)
  local crowd, err = stories.play(story, seed)
  if err then error(("make prove-sim STORY=%q SEED=%d shows it: %s"):format(story.name, seed, err), 0) end
  return crowd
end

describe("five processes that want", function ()
  for _, story in ipairs(stories.all) do
    it(("%s %s never share it, never sleep beside a free one, and leave nothing"):format(story.what, story.text),
      function ()
        local grants, orphaned, seeds, first = 0, 0, story.seeds * TIMES, story.first or 1
        for seed = first, first + seeds - 1 do
          local watch = play(story, seed).watch
          grants, orphaned = grants + watch.grants, orphaned + watch.orphaned
        end
        assert.is_true(grants > 2 * seeds, "only " .. grants .. " locks were taken")
        if story.name:find "orphans" then assert.is_true(orphaned > 0, "nobody was robbed") end
      end)
  end
end)

-- Seeds of long runs (docs/proving.md, "A million stories"), each of which showed something.
local MENDED = {
  ["mutex orphans"] = { 1000103 }, fenced = { 1001396, 1002703 }, robbed = { 1003773, 1795927580041 },
  ["rw callers races"] = { 1001511, 2001887 }, ["many callers"] = { 1001445, 1002401, 1002972, 2001077 },
  ["many limit"] = { 2000816 }, denied = { 2002039 }, ["tokens fenced destroy"] = { 2001656, 3000507 },
  ["fast deleted"] = { 3000712 }, loss = { 1000750 },
}

for name, seeds in pairs(MENDED) do
  it("seeds that ended badly once end well now: " .. name, function ()
    for _, seed in ipairs(seeds) do play(stories.named(name), seed) end
  end)
end

it("stories that several processes share are the same as those of one process", function ()
  -- Returns the counts of all stories of a run, and its verdict.
  local function sum_of(jobs)
    local told = process.shell("env", "STORY=mutex", "STORIES=5", "FROM=7", "JOBS=" .. jobs, os.getenv "LUA" or "lua",
      "tools/prove/simulation.lua")
    return told:match "\nall +(%d+ +%d+ +%d+ +%d+)\n", told:match "([^\n]+)\n*$"
  end
  local sum, verdict = sum_of(1)
  assert.matches("^5 ", sum)
  assert.equal("5 stories ended well", verdict)
  assert.same({ sum, verdict }, { sum_of(2) })
end)

-- Whatever could decide besides the seed (the order of a table, an address, a clock) is different then.
describe("a story that is played again is the same to the last letter", function ()
  local SEED, BUSY = 1700000000123, { "callers all", "tokens all", "fast all" }
  local told = {}

  local function trace(story)
    return table.concat(stories.play(stories.named(story), SEED, true).world.trace, "\n")
  end

  -- `...`: the interpreter, after variables for it.
  local function assert_same_elsewhere(...)
    for _, story in ipairs(BUSY) do
      local words = { ... }
      table.insert(words, "tools/prove/simulation.lua")
      local again = process.shell("env", "STORY=" .. story, "SEED=" .. SEED, unpack(words))
      assert.is_true(told[story] == again:sub(1, #told[story]), "it was told in two ways")
    end
  end

  setup(function ()
    for _, story in ipairs(BUSY) do told[story] = trace(story) end
  end)

  it("in the same process, and in another one", function ()
    for _, story in ipairs(BUSY) do
      assert.is_true(#told[story] > 10000)
      assert.is_true(told[story] == trace(story), "it was told in two ways")
    end
    assert_same_elsewhere(os.getenv "LUA" or "lua")
  end)

  it("under another Lua", function ()
    local another, needs = "luajit", "require 'compat53.string'"
    if package.loaded.jit then another, needs = "lua5.4", "" end
    local directory = "build/" .. another
    local is_there = io.open(directory .. "/amqplocks/core.so")
    if not (is_there and is_there:close() and pcall(process.shell, another, "-e", needs)) then
      return pending("no " .. another .. ", or not what it takes")
    end
    assert_same_elsewhere("LUA_PATH=./?.lua;;", "LUA_CPATH=" .. directory .. "/?.so;;", another)
  end)
end)

-- Superfluous tokens. A caller that claims a slot whose token is on its way to another waiter rings (publishes a token)
-- when it is done, and so adds one. A waiter that is woken in vain throws one away in the end.
for too_many, waiting in pairs{ [3] = { "for long", "a while" }, [6] = { "for long", "a while", "at once" } } do
  it(("eight processes in a storm leave at most %d tokens too many, waiting %s"):format(too_many,
    table.concat(waiting, ", ")), function ()
    local most = 0
    for seed = 4, 9 do -- the storms among them are the worst of the first dozen
      local crowd = Crowd.new(seed, { workers = 8, rounds = 15, hold = 0.01, poll = 600, paces = { Crowd.near[1] },
        waiting = waiting, loses_tokens = true })
      local function count()
        local ready, unacked = crowd.broker:count(crowd.kind.bell)
        most = math.max(most, ready + unacked)
        if not crowd.is_over then crowd.world:after(0.005, count) end
      end
      count()
      crowd:play()
    end
    assert.is_true(most <= 3 + too_many, most .. " tokens for three slots")
    assert.is_true(most > 3, "no storm at all")
  end)
end
