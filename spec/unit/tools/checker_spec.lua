-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- The checker of `make prove`, by journals written by hand: what it must find, and what it must not.
local checker = require "tools.prove.checker"
local journal = require "tools.prove.journal"
local report = require "tools.prove.report"

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

-- Checks; asserts the kinds of violations. Returns the first one, and all findings.
local function assert_violations(expected, lines)
  local findings, all = checker.check(records(lines)), {}
  for i, one in ipairs(findings.violations) do all[i] = one.kind end
  assert.equal(expected, table.concat(all, " "), lines .. "\n" .. report.of(findings))
  return findings.violations[1], findings
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

local function rw(lane, from, to, kind) return held(lane, "rw", from, to, "kind=" .. kind) end

local function fenced(lane, at, fence) return held(lane, "ledger", at, at + 1, "kind=mutex fence=" .. fence) end

local function permit(lane, from, to, id, fence)
  return held(lane, "permits", from, to, "kind=permit" .. (id and (" permit=%s fence=%d"):format(id, fence) or ""))
end

local function strike(from, what, to)
  return ("stage %s strike op=1 fault=%s\n stage %s over op=1\n"):format(from, what, to)
end

local READS_ON = [[
  a 1 ask op=1 pool=rw way=write
  a 1 got op=1 kind=write
  a 1 held op=1 from=1
  a 2 held op=1 from=2
  a 2 downgrade op=1 into=2 within=9
  a 3 downgraded op=1
  a 3 held op=2 from=3
  a 6 held op=2 from=6
]]
local THREE = permit("a", 2, 8) .. permit("b", 3, 8) .. permit("c", 4, 5)
local DOWN = "d 0 admin op=1 pool=permits action=resize slots=2 within=9\n d 1 done op=1 result=2\n "
local UP = "d %s admin op=2 pool=permits action=resize slots=3 within=9\n d %s done op=2 result=3\n "
-- Holds until it is stopped at 2; looks again when it is continued at 6.
local STOPPED = [[
  a 1 ask op=1 pool=mutex way=acquire
  a 1 got op=1 kind=mutex
  a 1 held op=1 from=1
  a 2 held op=1 from=2
  stage 2 strike op=1 fault=stop about=a hinders=6
  stage 6 over op=1
  a 6 %s
]] .. held("b", "mutex", 5, 7)
local OVERLAP = held("a", "mutex", 1, "5.5") .. held("b", "mutex", 5, 6)
local DURING = held("a", "mutex", "4.2", "5.5") .. held("b", "mutex", 5, 6) -- had only while the fault struck
local SEEN = slot("a", 1, 5, 1) .. "b %s saw pool=sem slot=%d from=2 what=absent\n"
local DOOR = "b 3 saw pool=rw kind=write from=2 what=absent\n" -- it is absent while others read
local LATE = "a 1 ask op=1 pool=mutex way=acquire within=1\n a 4 none op=1 code=timeout\n"
local HANGS = "a 1 connect op=1 within=1\n stage %d kill about=a\n stage 30 dead about=a\n"
local WAITS = "a %s ask op=1 pool=mutex way=acquire poll=1\n a %s none op=1 code=unreachable\n stage 30 quiet\n"
local BESIDE = held("b", "mutex", 1, 2) .. WAITS:format("1.5", "20")
local COUNT = "audit 9 count pool=sem expected=%d taken=%d more=busy least=2 most=4\n"
local REPAIRED = (COUNT:format(3, 2) .. COUNT:format(3, 3)):gsub("sem", "permits")
local IN_VAIN = "stage 1 strike op=1 fault=%s about=b\n a 2 ask op=1 pool=permits way=acquire poll=1\n"
  .. " stage 8 stays about=a\n" .. (COUNT:gsub("%%d", "3", 1) .. COUNT:format(3, 3)):gsub("sem", "permits")
local ANSWER = "a 1 ask op=1 pool=%s way=acquire within=2\n a %s none op=1 code=%s\n"
local VERIFIED = "a 1 ask op=1 pool=mutex way=acquire probe=%s\n a 2 got op=1 kind=mutex\n"
  .. "a 3 verify op=1 within=6\n a 4 verified op=1 code=blocked\n"
local LOST = "a 5 ask op=1 pool=sem way=acquire within=1\n a 5 got op=1 kind=slot slot=1\n a 5 held op=1 from=5\n"
  .. "a 8 gone op=1 from=8 code=%s\n%s a 9 let op=1 how=release within=3\n a 9 free op=1 code=lost\n"
local AGAIN = " a 8.5 held op=1 from=8.5\n"

-- A rule, then pairs: the kinds of violations, and the journal.
local RULES = {
  { "two hold the same at once", "", held("a", "mutex", 1, 2) .. held("b", "mutex", 2, 3),
    "", slot("a", 1, 3, 1) .. slot("b", 1, 3, 2), "overlap", slot("a", 1, 3, 1) .. slot("b", 2, 3, 1) },
  { "a fencing token falls or comes twice; of permits, that of each permit",
    "", fenced("a", 1, 7) .. held("b", "ledger", 3, 4) .. fenced("c", 5, 8), -- one holder wants no token
    "fence", fenced("a", 1, 7) .. fenced("b", 3, 9) .. fenced("c", 5, 8),
    "fence fence", fenced("a", 1, 7) .. fenced("b", 3, 7), -- not larger, and the same
    "", permit("a", 1, 2, "1e5", 7) .. permit("b", 3, 4, "100000", 3), -- ids are no numbers
    "fence", permit("a", 1, 2, "aa", 7) .. permit("b", 3, 4, "bb", 5) .. permit("c", 5, 6, "aa", 6) },
  { "a writer is beside another client; one that reads on may be joined by readers then",
    "", rw("a", 1, 4, "read") .. rw("b", 2, 3, "read"), "overlap", rw("a", 1, 4, "read") .. rw("b", 2, 3, "write"),
    "overlap", rw("a", 1, 4, "write") .. rw("b", 2, 3, "write"), "", READS_ON .. rw("b", 4, 5, "read"),
    "overlap", READS_ON .. rw("b", 4, 5, "write"), "overlap", READS_ON .. rw("b", "1.5", 5, "read") },
  { "more permits are held than there are, also if an administrator who was killed has acted, or has not",
    "", THREE, "overlap", DOWN .. THREE,
    "", DOWN .. UP:format(3, 6) .. THREE, "overlap", DOWN .. UP:format(6, 7) .. THREE,
    "", DOWN .. "d 1 admin op=2 pool=permits action=resize slots=4 within=9\n stage 1.5 kill about=d\n "
      .. "stage 2 dead about=d\n" .. THREE },
  { "a process that was stopped says, when it is asked again, that it holds; and not before",
    "", STOPPED:format "gone op=1 from=6 code=suspect", "overlap", STOPPED:format "held op=1 from=6" },
  { "an overlap has no documented fault that has freed that lock just before",
    "", OVERLAP .. strike(4, "restart about=* excuse=restarted", 4.1),
    "", OVERLAP .. strike(4, "delete pool=mutex excuse=deleted", 4.1),
    "overlap", OVERLAP .. strike(4, "stop about=a", 4.1), -- no such fault
    "overlap", OVERLAP .. strike(4, "close about=b excuse=closed", 4.1), -- of another client
    "overlap", OVERLAP .. strike(4, "delete pool=sem slot=1 excuse=deleted", 4.1),
    "overlap", OVERLAP .. strike(0.1, "close about=a excuse=closed", 0.2), -- before it had it
    "overlap", OVERLAP .. strike(5.4, "close about=a excuse=closed", 5.5), -- too late
    "overlap", OVERLAP .. strike(3, "close about=a excuse=closed", 3.1), -- believed for too long
    "", DURING .. strike(4, "claim about=a excuse=reset", 5),
    "overlap", DURING .. strike(4, "claim about=a excuse=reset robs=true", 5),
    "", OVERLAP .. strike(4, "claim about=a excuse=reset robs=true", 5) },
  { "a witness saw that nobody holds, while a client says that it does",
    "false", SEEN:format("3", 1), "", SEEN:format("3", 2), "", SEEN:format("6", 1), "", rw("a", 1, 5, "read") .. DOOR,
    "false", rw("a", 1, 5, "write") .. DOOR },
  { "an act takes longer than it may, but for the time that its process was stopped",
    "late", LATE, "", LATE .. strike(1.5, "stop about=a hinders=6", 3.5),
    "late", LATE .. strike(1.5, "stop about=b hinders=6", 3.5),
    "late", LATE .. strike(1.5, "silence about=a hinders=6", 3.5), "", LATE .. "stage 3.5 stall from=1.5 seconds=2\n",
    "", HANGS:format(3), "late", HANGS:format(9) },
  { "a client waits beside what is free, while nothing hinders it",
    "stuck", BESIDE, "", held("b", "mutex", 1, 2) .. WAITS:format("1.5", "5"),
    "", held("b", "mutex", 1, 19) .. WAITS:format("1.5", "20"),
    "", BESIDE .. strike(2, "x about=a hinders=6", 14), "stuck", BESIDE .. strike(2, "x about=b hinders=6", 14),
    "stuck", BESIDE .. strike(2, "x about=a", 14),
    "stuck", permit("b", 1, 29) .. WAITS:format("2", "20"):gsub("mutex", "permits"), -- there are two
    "", permit("b", 1, 29) .. permit("c", 1, 29) .. WAITS:format("2", "20"):gsub("mutex", "permits") },
  { "slots or permits are lost, or too many, unless an administrator of permits was struck, and they were repaired",
    "", COUNT:format(3, 3), "lost", COUNT:format(3, 2), "lost", COUNT:format(3, 4), "lost", COUNT:format(5, 5),
    "lost", REPAIRED, "", "stage 1 strike op=1 fault=admin about=a\n" .. REPAIRED },
  { "something is left in the broker, or an answer is explained by nothing",
    "left", "stage 9 left message=a_queue\n", "", ANSWER:format("mutex", 1, "unreachable"),
    "answer", ANSWER:format("mutex", 1, "not_found"), "", ANSWER:format("mutex", 3, "timeout"),
    "answer", ANSWER:format("mutex", "2.9", "timeout"), "", VERIFIED:format "publish",
    "answer", VERIFIED:format "auto", "answer", "a 1 close op=1 within=3\n a 2 closed op=1 code=protocol\n" },
  { "a lock was not handed over, as it was lost by then, and nothing had struck it",
    "answer", ANSWER:format("mutex", 3, "lost"), "", ANSWER:format("mutex", 3, "lost") .. strike(2, "x about=a", 2.1),
    "answer", ANSWER:format("mutex", 3, "lost") .. strike(2, "x about=b", 2.1),
    "", ANSWER:format("sem", 3, "lost") .. strike(2, "x pool=sem slot=1", 2.1) },
  { "a lock is lost for nothing, or held again; one that was doubtful may be",
    "", LOST:format("lost", "") .. strike(7, "x pool=sem slot=1", 7.1), "robbed", LOST:format("lost", ""),
    "robbed", LOST:format("lost", "") .. strike(7, "x about=b", 7.1),
    "robbed", LOST:format("lost", "") .. strike(7, "x pool=sem slot=2", 7.1),
    "robbed", LOST:format("lost", "") .. strike(8.5, "x about=a", 8.6), -- after it
    "robbed", LOST:format("lost", "") .. strike(0.1, "x about=a", 0.1), -- long before it
    "robbed", LOST:format("lost", AGAIN) .. strike(7, "x about=a", 7.1),
    "", LOST:format("suspect", AGAIN) .. strike(7, "x about=a", 7.1) },
  { "a process ends by itself, or does not end",
    "", "stage 2 kill about=a\n stage 3 dead about=a\n", "", "a 1 end\n stage 3 dead about=a\n",
    "ended", "stage 3 dead about=a\n", "ended", "a 1 end\n stage 3 dead about=a message=a_leak\n",
    "ended", "stage 3 stays about=a\n",
    "", IN_VAIN:format("admin", 0), "ended", IN_VAIN:format("admin", 1), "ended lost", IN_VAIN:format("x", 0) },
}

describe("the checker of journals finds that", function()
  for _, rule in ipairs(RULES) do
    it(rule[1], function()
      for i = 2, #rule, 2 do assert_violations(rule[i], rule[i + 1]) end
    end)
  end
end)

describe("the checker of journals", function()
  it("tells who overlaps, for how long, and lists what is excused", function()
    local found = assert_violations("overlap", held("a", "mutex", 1, "2.000001") .. held("b", "mutex", 2, 3))
    assert.is_true(math.abs(found.seconds - 1e-6) < 1e-9)
    assert.same({ "a", "b" }, found.lanes)
    local _, findings = assert_violations("", OVERLAP .. strike(4, "close about=a excuse=closed", 4.1))
    assert.equal("overlap", findings.exceptions[1].kind)
    assert.matches("closed", report.of(findings), 1, true)
  end)

  it("takes what a killed process held for given up when it was killed, and measures the hand-over", function()
    local killed = held("a", "mutex", 1, 3):gsub("%S+ %S+ let.*", "") .. [[
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

  it("reads a journal that breaks off in the middle of a line", function()
    assert.equal(1, #journal.parse("a", "1.5\task\top=1\n1.6\tgo"))
  end)
end)
