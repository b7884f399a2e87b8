-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The checker of `make prove`, by journals written by hand: what it must find, and what it must not.
local checker = require "tools.prove.checker"
local journal = require "tools.prove.journal"
local report = require "tools.prove.report"
local timeline = require "tools.prove.timeline"

local POOLS = [[
  stage 0 begins heartbeat=1
  stage 0 pool pool=sem kind=classic least=2 most=4
  stage 0 pool pool=mutex kind=mutex least=1 most=1
  stage 0 pool pool=ledger kind=fenced least=1 most=1
  stage 0 pool pool=rw kind=rwlock least=1 most=1
  stage 0 pool pool=permits kind=token least=2 most=4
  stage 0 sits about=a
  stage 0 sits about=b
  stage 0 sits about=c
  stage 0 sits about=d
]]

-- Lines "lane time act name=value …", in any order of lanes, as records.
local function records(lines)
  local lanes, names = {}, {}
  for lane, rest in (POOLS .. lines):gmatch "%s*(%S+) ([^\n]+)\n" do
    if not lanes[lane] then table.insert(names, lane) end
    lanes[lane] = (lanes[lane] or "") .. rest:gsub(" ", "\t") .. "\n"
  end
  local lists = {}
  for i, lane in ipairs(names) do lists[i] = journal.parse(lane, lanes[lane]) end
  return journal.merge(lists)
end

local function check(lines) return checker.check(records(lines)) end

local function kinds(list)
  local all = {}
  for i, one in ipairs(list) do all[i] = one.kind end
  return table.concat(all, " ")
end

-- Returns the first violation, and all findings.
local function assert_violations(expected, lines)
  local findings = check(lines)
  assert.equal(expected, kinds(findings.violations), lines .. "\n" .. report.of(findings))
  return findings.violations[1], findings
end

-- Rows { expected violations, lines }.
local function assert_each(rows)
  for _, row in ipairs(rows) do assert_violations(row[1], row[2]) end
end

-- A lock of lane: asked, got and looked at for the first time at `from`, for the last time at `to`, let go after it.
local function held(lane, pool, from, to, more)
  return (([[
  $lane $from ask op=1 pool=$pool way=acquire within=1
  $lane $from got op=1 $more
  $lane $from held op=1 from=$from
  $lane $to held op=1 from=$to
  $lane $to let op=1 how=release within=3
  $lane $to free op=1
]]):gsub("%$(%w+)", { lane = lane, pool = pool, from = from, to = to, more = more or "kind=mutex" }))
end

local function slot(lane, from, to, number) return held(lane, "sem", from, to, "kind=slot slot=" .. number) end

local function strike(from, what, to)
  return ("stage %s strike op=1 fault=%s\n stage %s over op=1\n"):format(from, what, to)
end

describe("the checker of journals", function()
  it("finds nothing where there is nothing", function()
    assert_each{
      { "", held("a", "mutex", 1, 2) .. held("b", "mutex", 2, 3) },
      { "", slot("a", 1, 3, 1) .. slot("b", 1, 3, 2) },
      { "", held("a", "mutex", 1, 3) .. slot("b", 1, 3, 1) },
    }
  end)

  it("finds fencing tokens that were given twice, or fall; of permits, those of each permit", function()
    local function fenced(lane, at, fence) return held(lane, "ledger", at, at + 1, "kind=mutex fence=" .. fence) end
    local function permit(lane, at, id, fence)
      return held(lane, "permits", at, at + 1, ("kind=permit permit=%s fence=%d"):format(id, fence))
    end
    assert_each{
      { "", fenced("a", 1, 7) .. fenced("b", 3, 8) .. fenced("c", 5, 19) },
      { "", fenced("a", 1, 7) .. held("b", "ledger", 3, 4) .. fenced("c", 5, 8) }, -- one holder wants no token
      { "fence", fenced("a", 1, 7) .. fenced("b", 3, 9) .. fenced("c", 5, 8) },
      { "fence fence", fenced("a", 1, 7) .. fenced("b", 3, 7) }, -- not larger, and the same
      { "", permit("a", 1, "aa", 7) .. permit("b", 1, "bb", 7) .. permit("c", 5, "aa", 8) },
      { "", permit("a", 1, "1e5", 7) .. permit("b", 3, "100000", 3) }, -- ids are no numbers
      { "fence", permit("a", 1, "aa", 7) .. permit("b", 3, "bb", 5) .. permit("c", 5, "aa", 6) },
      { "fence fence", permit("a", 1, "aa", 7) .. permit("b", 3, "aa", 7) },
    }
  end)

  it("finds two that hold the same at once, for a microsecond", function()
    local found = assert_violations("overlap", held("a", "mutex", 1, "2.000001") .. held("b", "mutex", 2, 3))
    assert.is_true(math.abs(found.seconds - 1e-6) < 1e-9)
    assert.same({ "a", "b" }, found.lanes)
    assert.matches("for 1 us", found.text, 1, true)
  end)

  it("finds a writer beside another client, also one that reads on, which other readers may join then", function()
    local function rw(lane, from, to, kind) return held(lane, "rw", from, to, "kind=" .. kind) end
    local reads_on = [[
      a 1 ask op=1 pool=rw way=write
      a 1 got op=1 kind=write
      a 1 held op=1 from=1
      a 2 held op=1 from=2
      a 2 downgrade op=1 into=2 within=9
      a 3 downgraded op=1
      a 3 held op=2 from=3
      a 6 held op=2 from=6
      a 6 let op=2 how=release within=3
      a 6 free op=2
    ]]
    assert_each{
      { "", rw("a", 1, 4, "read") .. rw("b", 2, 3, "read") },
      { "overlap", rw("a", 1, 4, "read") .. rw("b", 2, 3, "write") },
      { "overlap", rw("a", 1, 4, "write") .. rw("b", 2, 3, "read") },
      { "overlap", rw("a", 1, 4, "write") .. rw("b", 2, 3, "write") },
      { "", reads_on .. rw("b", 4, 5, "read") },
      { "overlap", reads_on .. rw("b", 4, 5, "write") },
      { "overlap", reads_on .. rw("b", "1.5", 5, "read") },
    }
  end)

  it("finds more permits than there are, and knows that an administrator who was killed may have acted, or not",
    function()
      local three = held("a", "permits", 2, 8, "kind=permit") .. held("b", "permits", 3, 8, "kind=permit")
        .. held("c", "permits", 4, 5, "kind=permit")
      local down = "d 0 admin op=1 pool=permits action=resize slots=2 within=9\n d 1 done op=1 result=2\n "
      local up = "d %s admin op=2 pool=permits action=resize slots=3 within=9\n d %s done op=2 result=3\n "
      assert_each{
        { "", three },
        { "overlap", down .. three },
        { "", down .. up:format(3, 6) .. three },
        { "overlap", down .. up:format(6, 7) .. three },
        { "", down .. "d 1 admin op=2 pool=permits action=resize slots=4 within=9\n stage 1.5 kill about=d\n "
          .. "stage 2 dead about=d\n" .. three },
      }
    end)

  -- Holds until it is stopped at 2; looks again when it is continued at 6.
  it("takes the word of a process that was stopped when it is asked again, and not before", function()
    local function stopped(says)
      return ([[
        a 1 ask op=1 pool=mutex way=acquire
        a 1 got op=1 kind=mutex
        a 1 held op=1 from=1
        a 2 held op=1 from=2
        stage 2 strike op=1 fault=stop about=a hinders=6
        stage 6 over op=1
        a 6 %s
        a 7 let op=1 how=release within=3
        a 7 free op=1
      ]]):format(says) .. held("b", "mutex", 5, 7)
    end
    assert_violations("", stopped "gone op=1 from=6 code=suspect")
    assert.matches("before it: stop of a", assert_violations("overlap", stopped "held op=1 from=6").text, 1, true)
  end)

  it("does not take what nobody looked at for held", function()
    assert_violations("", [[
      a 1 ask op=1 pool=mutex way=acquire
      a 1 got op=1 kind=mutex
      a 9 let op=1 how=release within=3
      a 9 free op=1
    ]] .. held("b", "mutex", 4, 6))
  end)

  it("excuses an overlap where a documented fault has freed that lock just before, and then only", function()
    local overlap = held("a", "mutex", 1, "5.5") .. held("b", "mutex", 5, 6)
    local _, findings = assert_violations("", overlap .. strike(4, "close about=a excuse=closed", 4.1))
    assert.equal("overlap", kinds(findings.exceptions))
    assert.is_true(math.abs(findings.exceptions[1].seconds - 0.5) < 1e-9)
    assert.matches("closed", report.of(findings), 1, true)
    local late = held("a", "mutex", "4.2", "5.5") .. held("b", "mutex", 5, 6) -- had only while the fault struck
    assert_each{
      { "", overlap .. strike(4, "restart about=* excuse=restarted", 4.1) },
      { "", overlap .. strike(4, "delete pool=mutex excuse=deleted", 4.1) },
      { "overlap", overlap .. strike(4, "stop about=a", 4.1) }, -- no such fault
      { "overlap", overlap .. strike(4, "close about=b excuse=closed", 4.1) }, -- of another client
      { "overlap", overlap .. strike(4, "delete pool=sem slot=1 excuse=deleted", 4.1) },
      { "overlap", overlap .. strike(0.1, "close about=a excuse=closed", 0.2) }, -- before it had it
      { "overlap", overlap .. strike(5.4, "close about=a excuse=closed", 5.5) }, -- too late
      { "overlap", overlap .. strike(3, "close about=a excuse=closed", 3.1) }, -- believed for too long
      { "", late .. strike(4, "claim about=a excuse=reset", 5) },
      { "overlap", late .. strike(4, "claim about=a excuse=reset robs=true", 5) },
      { "", overlap .. strike(4, "claim about=a excuse=reset robs=true", 5) },
    }
  end)

  it("finds what a witness saw that nobody holds, while a client says that it does", function()
    local seen = slot("a", 1, 5, 1) .. "b %s saw pool=sem slot=%d from=2 what=%s\n"
    -- The door of a readers–writer lock is absent while others read.
    local door = "b 3 saw pool=rw kind=write from=2 what=absent\n"
    assert_each{
      { "false", seen:format("3", 1, "absent") },
      { "", seen:format("3", 1, "present") },
      { "", seen:format("3", 2, "absent") },
      { "", seen:format("6", 1, "absent") },
      { "", held("a", "rw", 1, 5, "kind=read") .. door },
      { "false", held("a", "rw", 1, 5, "kind=write") .. door },
    }
  end)

  it("finds an act that takes longer than it may, but for the time that its process was stopped", function()
    local late = "a 1 ask op=1 pool=mutex way=acquire within=1\n a %s none op=1 code=timeout\n"
    local hangs = "a 1 connect op=1 within=1\n stage %s kill about=a\n stage 30 dead about=a\n"
    assert.matches("a: acquire of mutex took 3.00 s, and may take 1.00",
      assert_violations("late", late:format "4").text, 1, true)
    assert_each{
      { "", late:format "2.1" },
      { "", late:format "4" .. strike(1.5, "stop about=a hinders=6", 3.5) },
      { "late", late:format "4" .. strike(1.5, "stop about=b hinders=6", 3.5) },
      { "late", late:format "4" .. strike(1.5, "silence about=a hinders=6", 3.5) },
      { "", late:format "4" .. "stage 3.5 stall from=1.5 seconds=2\n" },
      { "", hangs:format "3" }, -- what a process did that was killed then
      { "late", hangs:format "9" },
    }
  end)

  it("finds a client that waits beside what is free, while nothing hinders it", function()
    local waits = "a %s ask op=1 pool=mutex way=acquire poll=1\n a %s none op=1 code=unreachable\n stage 30 quiet\n"
    local beside = held("b", "mutex", 1, 2) .. waits:format("1.5", "20")
    local permits = waits:format("2", "20"):gsub("mutex", "permits")
    local permit = held("b", "permits", 1, 29, "kind=permit")
    assert.matches("a waited for 18.00 s", assert_violations("stuck", beside).text, 1, true)
    assert_each{
      { "stuck", waits:format("1", "20") },
      { "", held("b", "mutex", 1, 2) .. waits:format("1.5", "5") },
      { "", held("b", "mutex", 1, 19) .. waits:format("1.5", "20") },
      { "", beside .. strike(2, "x about=a hinders=6", 14) },
      { "", beside .. strike(2, "x about=* hinders=6", 14) },
      { "stuck", beside .. strike(2, "x about=b hinders=6", 14) },
      { "stuck", beside .. strike(2, "x about=a", 14) },
      { "stuck", permit .. permits }, -- there are two
      { "", permit .. held("c", "permits", 1, 29, "kind=permit") .. permits },
    }
  end)

  it("finds slots and permits that are lost, or too many", function()
    local count = "audit 9 count pool=sem expected=%d taken=%d more=busy least=2 most=4\n"
    local repaired = count:format(3, 2) .. count:format(3, 3) -- slots do not need to be repaired
    local permits = repaired:gsub("sem", "permits")
    assert_each{
      { "", count:format(3, 3) },
      { "lost", count:format(3, 2) },
      { "lost", count:format(3, 4) },
      { "lost", count:format(5, 5) },
      { "lost", repaired },
      { "lost", permits },
    }
    local _, findings = assert_violations("", "stage 1 strike op=1 fault=admin about=a\n" .. permits)
    assert.equal("lost", kinds(findings.exceptions))
  end)

  it("finds what is left in the broker, and answers that nothing explains", function()
    local answer = "a 1 ask op=1 pool=mutex way=acquire within=2\n a %s none op=1 code=%s\n"
    local verified = "a 1 ask op=1 pool=mutex way=acquire probe=%s\n a 2 got op=1 kind=mutex\n"
      .. "a 3 verify op=1 within=6\n a 4 verified op=1 code=blocked\n"
    assert_each{
      { "left", "stage 9 left message=a_queue\n" },
      { "", answer:format(1, "unreachable") },
      { "answer", answer:format(1, "not_found") },
      { "answer", answer:format(1, "limit") },
      { "", answer:format(3, "timeout") },
      { "answer", answer:format("2.9", "timeout") }, -- before the time is over
      { "", verified:format "publish" },
      { "answer", verified:format "auto" },
      { "answer", "a 1 close op=1 within=3\n a 2 closed op=1 code=protocol\n" },
    }
  end)

  it("finds a lock that was not handed over, as it was lost by then, if nothing had struck it", function()
    for pool, struck in pairs{ mutex = "pool=mutex", sem = "pool=sem slot=1", permits = "about=a", rw = "about=*" } do
      local answer = ("a 1 ask op=1 pool=%s way=acquire\n a 9 none op=1 code=%s\n"):format(pool,
        pool == "rw" and "suspect" or "lost")
      assert_violations("answer", answer)
      assert_violations("", answer .. strike(7, "x " .. struck, 7.1))
      for _, other in ipairs{ "about=b", "pool=other", "pool=other slot=1" } do
        assert_violations("answer", answer .. strike(7, "x " .. other, 7.1))
      end
    end
  end)

  it("finds a lock that is lost for nothing, or held again, which one that was doubtful may be", function()
    local LOST = [[
      a 5 ask op=1 pool=sem way=acquire within=1
      a 5 got op=1 kind=slot slot=1
      a 5 held op=1 from=5
      a 8 gone op=1 from=8 code=%s
      %s
      a 9 let op=1 how=release within=3
      a 9 free op=1 code=lost
    ]]
    local lost, again = LOST:format("lost", ""), "a 8.5 held op=1 from=8.5"
    local struck = strike(7, "x about=a", 7.1)
    local found = assert_violations("robbed", lost)
    assert.matches("slot 1 of sem: a lost it, and nothing had struck it", found.text, 1, true)
    assert_each{
      { "", lost .. struck },
      { "", lost .. strike(7, "x about=*", 7.1) },
      { "", lost .. strike(7, "x pool=sem slot=1", 7.1) },
      { "", lost .. strike(0.5, "x about=a", 1) },
      { "robbed", lost .. strike(7, "x about=b", 7.1) },
      { "robbed", lost .. strike(7, "x pool=sem slot=2", 7.1) },
      { "robbed", lost .. strike(8.5, "x about=a", 8.6) }, -- after it
      { "robbed", lost .. strike(0.1, "x about=a", 0.1) }, -- long before it
      { "robbed", LOST:format("lost", again) .. struck },
      { "", LOST:format("suspect", again) .. struck },
    }
  end)

  it("finds a process that ends by itself, or does not end", function()
    assert_each{
      { "", "stage 2 kill about=a\n stage 3 dead about=a\n" },
      { "", "a 1 end\n stage 3 dead about=a\n" },
      { "ended", "stage 3 dead about=a\n" },
      { "ended", "a 1 end\n stage 3 dead about=a message=a_leak\n" },
      { "ended", "stage 3 stays about=a\n" },
    }
  end)

  it("takes what a process that was killed held last for given up when it was", function()
    local killed = [[
      a 1 ask op=1 pool=mutex way=acquire
      a 1 got op=1 kind=mutex
      a 1 held op=1 from=1
      a 3 held op=1 from=3
      stage 4 kill about=a
      stage 5 dead about=a
      stage 9 quiet
      b 2 ask op=1 pool=mutex way=acquire
      b TIME got op=1 kind=mutex
      b TIME held op=1 from=TIME
      b 6 held op=1 from=6
    ]]
    local _, findings = assert_violations("", (killed:gsub("TIME", "4.5")))
    assert.same({ 0.5 }, findings.hand_overs.SIGKILL)
    assert_violations("overlap", (killed:gsub("TIME", "2.5")))
  end)

  it("measures for who waited longest, whoever came later and gave up before", function()
    local _, findings = assert_violations("", held("a", "mutex", 1, 2) .. [[
      stage 9 quiet
      b 1.2 ask op=1 pool=mutex way=acquire
      c 1.5 ask op=1 pool=mutex way=acquire
      c 1.7 none op=1 code=timeout
      b 2.25 got op=1 kind=mutex
      b 3 let op=1 how=drop
      b 3 free op=1
    ]])
    assert.same({ release = { 0.25 } }, findings.hand_overs)
  end)

  it("reads a journal that breaks off in the middle of a line", function()
    assert.equal(1, #journal.parse("a", "1.5\task\top=1\n1.6\tgo"))
  end)

  it("draws what it found", function()
    local findings = check(held("a", "mutex", 1, "2.5") .. held("b", "mutex", 2, 3)
      .. "stage 1 strike op=1 fault=kill about=c\n")
    local picture = timeline.of(findings)
    for _, part in ipairs{ "<svg", "overlap at 2.000 s", "both held it", ">a<", ">b<", "#e00", "kill", "</svg>" } do
      assert.is_truthy(picture:find(part, 1, true), part)
    end
    assert.is_truthy(timeline.of(check(held("a", "mutex", 1, 2))):find("no violations", 1, true))
  end)
end)
