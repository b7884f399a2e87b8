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

local function assert_violations(expected, lines)
  local findings = check(lines)
  assert.equal(expected, kinds(findings.violations), report.of(findings))
  return findings.violations[1], findings
end

-- A lock of lane: asked, got and looked at for the first time at `from`, for the last time at `to`, let go after it.
local function held(lane, pool, from, to, more)
  return ([[
  $lane $from ask op=1 pool=$pool way=acquire within=1
  $lane $from got op=1 $more
  $lane $from held op=1 from=$from
  $lane $to held op=1 from=$to
  $lane $to let op=1 how=release within=3
  $lane $to free op=1
]]):gsub("%$(%w+)", { lane = lane, pool = pool, from = from, to = to, more = more or "kind=mutex" })
end

describe("the checker of journals", function()
  it("finds nothing where there is nothing", function()
    assert_violations("", held("a", "mutex", 1, 2) .. held("b", "mutex", 2, 3))
    assert_violations("", held("a", "sem", 1, 3, "kind=slot slot=1") .. held("b", "sem", 1, 3, "kind=slot slot=2"))
    assert_violations("", held("a", "mutex", 1, 3) .. held("b", "sem", 1, 3, "kind=slot slot=1"))
  end)

  describe("finds fencing tokens", function()
    local function fenced(lane, from, to, fence) return held(lane, "ledger", from, to, "kind=mutex fence=" .. fence) end

    it("that grow: nothing wrong, also where a process without one holds it meanwhile", function()
      assert_violations("", fenced("a", 1, 2, 7) .. fenced("b", 3, 4, 8) .. fenced("c", 5, 6, 19))
      assert_violations("", fenced("a", 1, 2, 7) .. held("b", "ledger", 3, 4) .. fenced("c", 5, 6, 8))
    end)

    it("that were given twice, or fall", function()
      assert_violations("fence", fenced("a", 1, 2, 7) .. fenced("b", 3, 4, 9) .. fenced("c", 5, 6, 8))
      assert_violations("fence fence", fenced("a", 1, 2, 7) .. fenced("b", 3, 4, 7)) -- not larger, and the same
    end)
  end)

  describe("finds fencing tokens of permits", function()
    local function permit(lane, from, to, id, fence)
      return held(lane, "permits", from, to, ("kind=permit permit=%s fence=%d"):format(id, fence))
    end

    it("that grow for each permit: nothing wrong, also where two have the same", function()
      assert_violations("", permit("a", 1, 4, "aa", 7) .. permit("b", 2, 3, "bb", 7) .. permit("c", 5, 6, "aa", 8)
        .. permit("d", 5, 6, "bb", 9))
      assert_violations("", permit("a", 1, 2, "aa", 7) .. held("b", "permits", 3, 4, "kind=permit")
        .. permit("c", 5, 6, "bb", 3))
      assert_violations("", permit("a", 1, 2, "1e5", 7) .. permit("b", 3, 4, "100000", 3)) -- ids are no numbers
    end)

    it("that were given twice, or fall", function()
      assert_violations("fence", permit("a", 1, 2, "aa", 7) .. permit("b", 3, 4, "bb", 5) .. permit("c", 5, 6, "aa", 6))
      assert_violations("fence fence", permit("a", 1, 2, "aa", 7) .. permit("b", 3, 4, "aa", 7))
    end)
  end)

  describe("finds two who hold the same at once:", function()
    it("for a microsecond", function()
      local found = assert_violations("overlap", held("a", "mutex", 1, "2.000001") .. held("b", "mutex", 2, 3))
      assert.is_true(math.abs(found.seconds - 1e-6) < 1e-9)
      assert.same({ "a", "b" }, found.lanes)
      assert.matches("for 1 us", found.text, 1, true)
    end)

    it("a writer, and whoever else", function()
      assert_violations("", held("a", "rw", 1, 4, "kind=read") .. held("b", "rw", 2, 3, "kind=read"))
      assert_violations("overlap", held("a", "rw", 1, 4, "kind=read") .. held("b", "rw", 2, 3, "kind=write"))
      assert_violations("overlap", held("a", "rw", 1, 4, "kind=write") .. held("b", "rw", 2, 3, "kind=read"))
      assert_violations("overlap", held("a", "rw", 1, 4, "kind=write") .. held("b", "rw", 2, 3, "kind=write"))
    end)

    it("a writer that reads on, and another writer; but not readers who join it then", function()
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
      assert_violations("", reads_on .. held("b", "rw", 4, 5, "kind=read"))
      assert_violations("overlap", reads_on .. held("b", "rw", 4, 5, "kind=write"))
      assert_violations("overlap", reads_on .. held("b", "rw", "1.5", 5, "kind=read"))
    end)

    it("more permits than there are", function()
      local function all(resizing)
        local two = held("a", "permits", 2, 8, "kind=permit") .. held("b", "permits", 3, 8, "kind=permit")
        return resizing .. two .. held("c", "permits", 4, 5, "kind=permit")
      end
      local down = "d 0 admin op=1 pool=permits action=resize slots=2 within=9\n d 1 done op=1 result=2\n "
      assert_violations("", all "")
      assert_violations("overlap", all(down))
      assert_violations("", all(down
        .. "d 3 admin op=2 pool=permits action=resize slots=3 within=9\n d 6 done op=2 result=3\n "))
      assert_violations("overlap",
        all(down .. "d 6 admin op=2 pool=permits action=resize slots=3 within=9\n d 7 done op=2 result=3\n "))
      local up = "d 0 admin op=1 pool=permits action=resize slots=4 within=9\n d 0.5 done op=1 result=4\n "
      assert_violations("", all(up))
      assert_violations("overlap",
        all(up .. "d 0.6 admin op=2 pool=permits action=resize slots=2 within=9\n d 1 done op=2 result=2\n "))
      -- Whoever was killed may have done it, or not.
      assert_violations("", all(down .. [[d 1 admin op=2 pool=permits action=resize slots=4 within=9
        stage 1.5 kill about=d
        stage 2 dead about=d
        ]]))
    end)
  end)

  -- Holds until it is stopped at 2; looks again when it is continued at 6.
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
    ]]):format(says)
  end

  it("takes the word of a process that was stopped when it is asked again, and not before", function()
    assert_violations("", stopped "gone op=1 from=6 code=suspect" .. held("b", "mutex", 5, 7))
    local found = assert_violations("overlap", stopped "held op=1 from=6" .. held("b", "mutex", 5, 7))
    assert.matches("before it: stop of a", found.text, 1, true)
  end)

  it("does not take what nobody looked at for held", function()
    assert_violations("", [[
      a 1 ask op=1 pool=mutex way=acquire
      a 1 got op=1 kind=mutex
      a 9 let op=1 how=release within=3
      a 9 free op=1
    ]] .. held("b", "mutex", 4, 6))
  end)

  describe("where a documented fault has freed a lock,", function()
    local OVERLAP = held("a", "mutex", 1, "5.5") .. held("b", "mutex", 5, 6)

    local function after(strike)
      local findings = check(OVERLAP .. strike)
      return kinds(findings.violations), kinds(findings.exceptions), findings
    end

    it("says so apart, with the time that was seen", function()
      local violations, exceptions, findings =
        after "stage 4 strike op=1 fault=close about=a excuse=closed\n stage 4.1 over op=1\n"
      assert.same({ "", "overlap" }, { violations, exceptions })
      assert.is_true(math.abs(findings.exceptions[1].seconds - 0.5) < 1e-9)
      assert.matches("closed", report.of(findings), 1, true)
      assert.equal("", (after "stage 4 strike op=1 fault=restart about=* excuse=restarted\n stage 4.1 over op=1\n"))
      assert.equal("", (after "stage 4 strike op=1 fault=delete pool=mutex excuse=deleted\n stage 4.1 over op=1\n"))
    end)

    it("does not if it was no such fault, or of somebody else, too early, too late, or believed for too long",
      function()
      for _, strike in ipairs{
        "stage 4 strike op=1 fault=stop about=a\n stage 4.1 over op=1\n",
        "stage 4 strike op=1 fault=close about=b excuse=closed\n stage 4.1 over op=1\n",
        "stage 4 strike op=1 fault=delete pool=sem slot=1 excuse=deleted\n stage 4.1 over op=1\n",
        "stage 0.1 strike op=1 fault=close about=a excuse=closed\n stage 0.2 over op=1\n",
        "stage 5.4 strike op=1 fault=close about=a excuse=closed\n stage 5.5 over op=1\n",
        "stage 3 strike op=1 fault=close about=a excuse=closed\n stage 3.1 over op=1\n",
      } do
        assert.equal("overlap", (after(strike)), strike)
      end
    end)

    it("does not if the fault robs, and it was had only then", function()
      local overlap = held("a", "mutex", "4.2", "5.5") .. held("b", "mutex", 5, 6)
      local strike = "stage 4 strike op=1 fault=claim about=a excuse=reset%s\n stage 5 over op=1\n"
      assert.equal("", kinds(check(overlap .. strike:format("")).violations))
      assert_violations("overlap", overlap .. strike:format(" robs=true"))
      assert.equal("", (after(strike:format(" robs=true"))))
    end)
  end)

  it("finds what a witness saw that nobody holds, while somebody says he does", function()
    local seen = held("a", "sem", 1, 5, "kind=slot slot=1") .. "b %s saw pool=sem slot=%d from=2 what=%s\n"
    assert_violations("false", seen:format("3", 1, "absent"))
    assert_violations("", seen:format("3", 1, "present"))
    assert_violations("", seen:format("3", 2, "absent"))
    assert_violations("", seen:format("6", 1, "absent"))
    -- The door of a readers–writer lock is absent while others read.
    assert_violations("", held("a", "rw", 1, 5, "kind=read") .. "b 3 saw pool=rw kind=write from=2 what=absent\n")
    assert_violations("false", held("a", "rw", 1, 5, "kind=write") .. "b 3 saw pool=rw kind=write from=2 what=absent\n")
  end)

  it("finds an act that takes longer than it may, but for the time that its process was stopped", function()
    local late = "a 1 ask op=1 pool=mutex way=acquire within=1\n a %s none op=1 code=timeout\n"
    assert_violations("", late:format "2.1")
    local found = assert_violations("late", late:format "4")
    assert.matches("a: acquire of mutex took 3.00 s, and may take 1.00", found.text, 1, true)
    local stop = "stage 1.5 strike op=1 fault=%s about=%s hinders=6\n stage 3.5 over op=1\n"
    assert_violations("", late:format "4" .. stop:format("stop", "a"))
    assert_violations("late", late:format "4" .. stop:format("stop", "b"))
    assert_violations("late", late:format "4" .. stop:format("silence", "a"))
    assert_violations("", late:format "4" .. "stage 3.5 stall from=1.5 seconds=2\n")
  end)

  describe("finds who waits", function()
    local WAITS = "a %s ask op=1 pool=mutex way=acquire poll=1\n a %s none op=1 code=unreachable\n stage 30 quiet\n"

    it("beside a lock that is free", function()
      local found = assert_violations("stuck", held("b", "mutex", 1, 2) .. WAITS:format("1.5", "20"))
      assert.matches("a waited for 18.00 s", found.text, 1, true)
      assert_violations("", held("b", "mutex", 1, 2) .. WAITS:format("1.5", "5"))
      assert_violations("stuck", WAITS:format("1", "20"))
    end)

    it("but not while somebody holds it", function()
      assert_violations("", held("b", "mutex", 1, 19) .. WAITS:format("1.5", "20"))
    end)

    it("but not while he cannot get it", function()
      local struck = held("b", "mutex", 1, 2) .. WAITS:format("1.5", "20") .. "stage 2 strike op=1 fault=x about=%s%s\n"
        .. "stage 14 over op=1\n"
      assert_violations("", struck:format("a", " hinders=6"))
      assert_violations("", struck:format("*", " hinders=6"))
      assert_violations("stuck", struck:format("b", " hinders=6"))
      assert_violations("stuck", struck:format("a", ""))
    end)

    it("for a permit, if there are fewer holders than permits", function()
      local waits = WAITS:gsub("mutex", "permits")
      assert_violations("stuck", held("b", "permits", 1, 29, "kind=permit") .. waits:format("2", "20"))
      assert_violations("", held("b", "permits", 1, 29, "kind=permit") .. held("c", "permits", 1, 29, "kind=permit")
        .. waits:format("2", "20"))
    end)
  end)

  it("finds slots and permits that are lost, or too many", function()
    local count = "audit 9 count pool=sem expected=%d taken=%d more=busy least=2 most=4\n"
    assert_violations("", count:format(3, 3))
    assert_violations("lost", count:format(3, 2))
    assert_violations("lost", count:format(3, 4))
    assert_violations("lost", count:format(5, 5))
    assert_violations("lost", count:format(3, 2) .. count:format(3, 3)) -- slots do not need to be repaired
    local permits = (count:format(3, 2) .. count:format(3, 3)):gsub("sem", "permits")
    assert_violations("lost", permits)
    local _, findings = assert_violations("", "stage 1 strike op=1 fault=admin about=a\n" .. permits)
    assert.equal("lost", kinds(findings.exceptions))
  end)

  it("finds what is left in the broker, and answers that nothing explains", function()
    assert_violations("left", "stage 9 left message=a_queue\n")
    local answer = "a 1 ask op=1 pool=mutex way=acquire\n a 1 none op=1 code=%s\n"
    assert_violations("", answer:format "unreachable")
    assert_violations("answer", answer:format "not_found")
    assert_violations("answer", answer:format "limit")
    local verified = "a 1 ask op=1 pool=mutex way=acquire probe=%s\n a 2 got op=1 kind=mutex\n"
      .. "a 3 verify op=1 within=6\n a 4 verified op=1 code=blocked\n"
    assert_violations("", verified:format "publish")
    assert_violations("answer", verified:format "auto")
  end)

  it("finds a lock that was not handed over, as it was lost by then, if nothing had struck it", function()
    for _, code in ipairs{ "lost", "suspect" } do
      for pool, struck in pairs{ mutex = "pool=mutex", sem = "pool=sem slot=1", permits = "about=a", rw = "about=*" } do
        local answer = ("a 1 ask op=1 pool=%s way=acquire\n a 9 none op=1 code=%s\n"):format(pool, code)
        local strike = answer .. "stage 7 strike op=1 fault=x %s\n stage 7.1 over op=1\n"
        assert_violations("", strike:format(struck))
        for _, other in ipairs{ "about=b", "pool=other", "pool=other slot=1" } do
          assert_violations("answer", strike:format(other))
        end
        assert_violations("answer", answer)
      end
    end
  end)

  it("finds a timeout before the time is over, and whatever goes wrong with closing", function()
    local early = "a 1 ask op=1 pool=mutex way=acquire within=2\n a %s none op=1 code=timeout\n"
    assert_violations("", early:format "3")
    assert_violations("answer", early:format "2.9")
    assert_violations("answer", "a 1 close op=1 within=3\n a 2 closed op=1 code=protocol\n")
  end)

  describe("finds a lock that is lost", function()
    local LOST = [[
      a 5 ask op=1 pool=sem way=acquire within=1
      a 5 got op=1 kind=slot slot=1
      a 5 held op=1 from=5
      a 8 gone op=1 from=8 code=%s
      %s
      a 9 let op=1 how=release within=3
      a 9 free op=1 code=lost
    ]]

    it("for nothing", function()
      local found = assert_violations("robbed", LOST:format("lost", ""))
      assert.matches("slot 1 of sem: a lost it, and nothing had struck it", found.text, 1, true)
      local strike = "stage %s strike op=1 fault=x %s\n stage %s over op=1\n"
      for _, struck in ipairs{ { "7", "about=a", "7.1" }, { "7", "about=*", "7.1" }, { "7", "pool=sem slot=1", "7.1" },
        { "0.5", "about=a", "1" } } do
        assert_violations("", LOST:format("lost", "") .. strike:format(struck[1], struck[2], struck[3]))
      end
      for _, struck in ipairs{ { "7", "about=b", "7.1" }, { "7", "pool=sem slot=2", "7.1" },
        { "8.5", "about=a", "8.6" }, { "0.1", "about=a", "0.1" } } do
        assert_violations("robbed", LOST:format("lost", "") .. strike:format(struck[1], struck[2], struck[3]))
      end
    end)

    it("and held again, which one that was doubtful may be", function()
      local strike = "stage 7 strike op=1 fault=x about=a\n stage 7.1 over op=1\n"
      assert_violations("robbed", LOST:format("lost", "a 8.5 held op=1 from=8.5") .. strike)
      assert_violations("", LOST:format("suspect", "a 8.5 held op=1 from=8.5") .. strike)
    end)
  end)

  it("finds what a process that was killed had been about for too long", function()
    local hangs = "a 1 connect op=1 within=1\n stage %s kill about=a\n stage 30 dead about=a\n"
    assert_violations("", hangs:format "3")
    assert_violations("late", hangs:format "9")
  end)

  it("finds a process that ends by itself, or does not end", function()
    assert_violations("", "stage 2 kill about=a\n stage 3 dead about=a\n")
    assert_violations("", "a 1 end\n stage 3 dead about=a\n")
    assert_violations("ended", "stage 3 dead about=a\n")
    assert_violations("ended", "a 1 end\n stage 3 dead about=a message=a_leak\n")
    assert_violations("ended", "stage 3 stays about=a\n")
    assert_violations("ended ended", [[
      a:1 1 ask op=1 pool=mutex way=acquire
      a:2 1 ask op=2 pool=mutex way=acquire
      a:3 1 ask op=3 pool=mutex way=try_acquire
      stage 3 stays about=a
      a:1 4 none op=1 code=timeout
    ]])
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
      b %s got op=1 kind=mutex
      b %s held op=1 from=%s
      b 6 held op=1 from=6
    ]]
    local _, findings = assert_violations("", killed:format("4.5", "4.5", "4.5"))
    assert.same({ 0.5 }, findings.hand_overs.SIGKILL)
    assert_violations("overlap", killed:format("2.5", "2.5", "2.5"))
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
