-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- amqp-lock-admin ls and holders, with inputs of every sort: what is read of them, and that hostile ones do no harm. No
-- broker is asked.
local command = require "spec.support.command"
local process = require "spec.support.process"

local ADMIN = command.DIRECTORY .. "/amqp-lock-admin"

local QUEUES = "name\targuments\towner_pid\tconsumers\tmessages\tmessages_ready\n"
local CONSUMERS = "queue_name\tchannel_pid\tconsumer_tag\targuments\n"
local CHANNELS = "pid\tconnection\tmessages_unacknowledged\n"

local count = 0

-- Makes a file of this text; returns its path.
local function file(text)
  count = count + 1
  local path = command.place() .. "/input" .. count
  process.write(path, text)
  return path
end

-- Runs amqp-lock-admin with this text as standard input; it must end with this status. Returns its output and what it
-- tells.
local function run(status, text, ...)
  local path = file(text)
  local ended = process.shell("sh", "-c", 'in=$1; shift; "$@" <"$in" >"$in.out" 2>"$in.err"; echo $?', "sh", path,
    ADMIN, ...)
  local told = process.contents(path .. ".err")
  assert.equal(status .. "\n", ended, told)
  return process.contents(path .. ".out"), told
end

-- A queue's line.
local function queue(name, arguments, owner, messages, ready)
  return ("%s\t[%s]\t%s\t1\t%s\t%s\n"):format(name, arguments or "", owner or "", messages or 0, ready or 0)
end

local function held(holder) return ('{"x-amqplocks-ticket","0123456789abcdef"},{"x-amqplocks-holder",%s},'
  .. '{"x-amqplocks-acquired-at",1700000000}'):format(holder) end

-- Returns the lines that ls prints for a text, without the heading.
local function lines(text, ...) return (run(0, text, "ls", ...):gsub("^[^\n]*\n", "")) end

-- Returns the table that ls prints for a text, without the heading and with one blank between columns.
local function rows(text, ...) return (lines(text, ...):gsub("  +", " ")) end

-- Returns the values of this key in the lines of JSON that ls prints for a text, with ", " between them.
local function values_of(key, text)
  local all = {}
  for value in run(0, text, "ls", "--json-output", "-"):gmatch('"' .. key .. '":"([^\n]-)"[,}]') do
    table.insert(all, value)
  end
  return table.concat(all, ", ")
end

after_each(command.clear)

describe("amqp-lock-admin ls, of what rabbitmqctl prints,", function()
  it("reads a holder that is a text in any form, and none of anything else", function()
    local text = QUEUES
    local forms = {
      { '"press 4"', "press 4" }, { [["a\"b\\c"]], [[a\"b\\c]] }, { '"ü"', "ü" },
      { "[119,32,9731,128512]", "w ☃😀" }, { '<<"bin">>', "bin" }, { '<<"ü"/utf8>>', "ü" },
      { [["\101\x{2603}\x41"]], "A☃A" }, { '"{[,]}\\"},{"', [[{[,]}\"},{]] },
      { [["a\n\e[31m\tb\x{85}c\0"]], "a??[31m?b?c?" }, { '"a\255\192\128b"', "a???b" },
      { [["\x{d800}\x{110000}"]], "????" }, { 'longstr,"typed"', "typed" },
      { '""' }, { "[]" }, { "[1,-2]" }, { "undefined" }, { '{"a",{1,[2]}}' }, { "12" },
    }
    for i, form in ipairs(forms) do text = text .. queue(("db%02d-mutex"):format(i), held(form[1]), "<a.1.2.0>") end
    local i = 0
    for line in run(0, text, "ls", "--json-output", "-"):gmatch "[^\n]+" do
      i = i + 1
      assert.matches(('"name":"db%02d","kind":"mutex","state":"holds"'):format(i), line, 1, true)
      assert.equal(forms[i][2], line:match '"holder":"(.-)","since"', line)
    end
    assert.equal(#forms, i)
  end)

  it("cuts a holder's name that is too long for a broker of this library", function()
    local name = values_of("holder", QUEUES .. queue("db-mutex", held('"' .. ("☃"):rep(5000) .. '"'), "<a.1.2.0>"))
    assert.is_true(#name < 1100 and name:sub(1, 30) == ("☃"):rep(10))
  end)

  it("shows marks that nobody sees or that turn a text around, and cuts what is wide; JSON has all of it", function()
    local turn, wide = "\226\128\174", ("☃"):rep(64)
    local name = "a" .. turn .. "b\226\128\139\226\129\166c\239\187\191\194\173"
    local shown = "a<U+202E>b<U+200B><U+2066>c<U+FEFF><U+00AD>"
    local text = QUEUES .. queue(name .. "-mutex", held('"' .. name .. '"'), "<a.1.2.0>")
      .. queue("w-mutex", held('"' .. wide .. '☃"'), "<a.1.3.0>")
      .. queue("x-mutex", held('"' .. wide .. '"'), "<a.1.4.0>")
    for verb, times in pairs { ls = 2, holders = 3 } do -- the reason that holders gives names the lock as well
      local output = run(0, text, verb, "-")
      assert.is_nil(output:find(turn, 1, true) or output:find(wide .. "☃", 1, true))
      assert.equal(times, select(2, output:gsub((shown:gsub("%p", "%%%0")), "")), output)
      assert.is_truthy(output:find(wide .. "…", 1, true) and output:find(wide .. "[ ,]"), output)
    end
    assert.equal(name, run(0, text, "ls", "--json-output", "-"):match '"name":"(a.-)"')
  end)

  it("shows one line for each holder, and how many slots and permits are free", function()
    local text = QUEUES .. queue("s-2-A") .. queue("s-10-A") .. queue("s-1-A") .. queue("s-2-B", held '"h"',
      "<a.1.2.0>")
      .. queue("s-11-B", held '"old"', "<a.1.3.0>") .. queue("p.semaphore", "", "", 5, 2) .. queue("p.semaphore-count",
        "", "", 5, 5)
      .. queue("other", "", "") .. queue("s-2-B-bolt") .. queue("s-bell") .. queue("s-admin", held '"adm"', "<a.1.4.0>")
    assert.equal([[
p  2 of 5 permits free - - - -
s  2 of 3 slots free - - - -
s  slot 2 h 2023-11-14T22:13:20Z 0123456789abcdef <a.1.2.0>
s  slot 11 (removed) old 2023-11-14T22:13:20Z 0123456789abcdef <a.1.3.0>
s  administrator adm 2023-11-14T22:13:20Z 0123456789abcdef <a.1.4.0>
]], (lines(text, "-"):gsub("(%S)  +", "%1 "):gsub("\n(%S+) ", "\n%1  "):gsub("^(%S+) ", "%1  ")))
    assert.equal("", lines(text, "--lock", "none", "-"))
  end)

  local BELL = QUEUES .. queue("db-mutex", held '"h"', "<a.1.2.0>") .. queue("db-mutexbell")
  local function at_bell(channel, holder, priority)
    local arguments = '[{"x-amqplocks-holder","%s"},{"x-amqplocks-waiting-since",1700000001}%s]'
    return ("db-mutexbell\t%s\ttag\t" .. arguments .. "\n"):format(channel,
      holder, priority or "")
  end

  for _, case in ipairs {
    { "waits, by its channel", at_bell("<c.1>", "w") .. CHANNELS .. "<c.1>\t<a.9>\t0\n", "waits" },
    { "was woken, by its channel", at_bell("<c.1>", "w") .. CHANNELS .. "<c.1>\t<a.9>\t1\n", "waits, was woken" },
    { "is the holder with its token", at_bell("<c.1>", "h") .. CHANNELS .. "<c.1>\t<a.1.2.0>\t1\n", nil },
    { "waits, of the holder's connection", at_bell("<c.1>", "h") .. CHANNELS .. "<c.1>\t<a.1.2.0>\t0\n", "waits" },
    { "waits, without channels", at_bell("<c.1>", "w"), "waits" },
    { "has the holder's name, without channels", at_bell("<c.1>", "h"), "waits or holds" },
    { "is the holder before all others", at_bell("<c.1>", "w", ',{"x-priority",2147483647}'), nil },
    { "is of version 0.1.0", "db-mutexbell\t<c.1>\ttag\t[]\n", "waits" },
  } do
    it("shows a consumer at a bell that " .. case[1], function()
      assert.equal("mutex" .. (case[3] and ", " .. case[3] or ""), values_of("what", BELL .. CONSUMERS .. case[2]))
    end)
  end

  local ACTIVE = "queue_name\tchannel_pid\tconsumer_tag\tactive\targuments\n"
  local FAST_HELD, FAST_IDLE = QUEUES .. queue("db-fastmutex", nil, nil, 1, 0),
    QUEUES .. queue("db-fastmutex", nil, nil, 1, 1)

  -- A line of ACTIVE; without `active`, of CONSUMERS.
  local function at_fast(holder, since, active)
    return ('db-fastmutex\t<c.%s>\ttag %s\t%s[{"x-amqplocks-holder","%s"},{"x-amqplocks-waiting-since",%d}]\n'):format(
      holder, holder, active and active .. "\t" or "", holder, since)
  end

  local ACTIVE_B = ACTIVE .. at_fast("a", 1700000000, "false") .. at_fast("b", 1700000001, "true")
  local UNTOLD = CONSUMERS .. at_fast("a", 1700000000) .. at_fast("b", 1700000001)
  for _, case in ipairs {
    { "the active consumer, as the token is out", FAST_HELD .. ACTIVE_B, "holds, waits; b, a" },
    { "no consumer, as the token is not out yet", FAST_IDLE .. ACTIVE_B, "waits, waits; b, a" },
    { "the active consumer, whose channel says so", FAST_IDLE .. ACTIVE_B .. CHANNELS .. "<c.b>\t<x.1>\t1\n",
      "holds, waits; b, a" },
    { "the active consumer, as messages unacknowledged are told", "name\targuments\tmessages_unacknowledged\n"
      .. "db-fastmutex\t[]\t1\n" .. ACTIVE_B, "holds, waits; b, a" },
    { "one consumer, though the next one had the token when channels were listed", FAST_HELD .. ACTIVE_B .. CHANNELS
      .. "<c.a>\t<x.1>\t1\n<c.b>\t<x.1>\t0\n", "holds, waits; b, a" },
    { "the consumer whose channel has the token, where it is not told which one is active", FAST_HELD .. UNTOLD
      .. CHANNELS .. "<c.a>\t<x.1>\t0\n<c.b>\t<x.1>\t1\n", "waits, holds; a, b" },
    { "one consumer or the other, where nothing tells", FAST_HELD .. UNTOLD, "holds_or_waits, holds_or_waits; a, b" },
    { "the active consumer or nobody, where queues tell no messages", "name\targuments\ndb-fastmutex\t[]\n" .. ACTIVE_B,
      "holds_or_waits, waits; b, a" },
  } do
    it("shows as the holder of a fast mutex " .. case[1], function()
      assert.equal(case[3], values_of("state", case[2]) .. "; " .. values_of("holder", case[2]))
    end)
  end

  it("shows a fast mutex by holder and waiters; one that is free not at all, as no mutex", function()
    assert.equal([[
db fast mutex b 2023-11-14T22:13:21Z tag b <x.1>
db waits for the fast mutex a 2023-11-14T22:13:20Z tag a -
]], rows(FAST_HELD .. ACTIVE_B .. CHANNELS .. "<c.b>\t<x.1>\t1\n", "-"))
    assert.equal("", lines(FAST_IDLE, "-"))
    assert.equal("", lines(FAST_IDLE .. ACTIVE, "-"))
    assert.equal("", lines(QUEUES .. queue("db-fastmutex", nil, nil, 0, 0), "-"))
  end)

  it("shows a fast mutex that is held, by whom the list of queues alone does not tell", function()
    assert.equal("db fast mutex - - - -\n", rows(FAST_HELD, "-"))
    assert.matches("\n# its connection is not told: add the list of consumers", run(0, FAST_HELD, "holders", "-"))
    assert.matches("^# db, fast mutex: held by b, since [^\n]*\nrabbitmqctl close_connection '<x.1>' [^\n]*\n$",
      run(0, FAST_HELD .. ACTIVE_B .. CHANNELS .. "<c.b>\t<x.1>\t1\n", "holders", "-"))
  end)

  it("reads several files, tables one after another, CR LF, and lines for people before them", function()
    local queues = "Timeout: 60.0 seconds ...\r\nListing queues for vhost / ...\r\n" .. (BELL:gsub("\n", "\r\n"))
    local consumers = file(CONSUMERS .. at_bell("<c.1>", "w"))
    local channels = file(CHANNELS .. "<c.1>\t<a.9>\t0")
    local apart = run(0, queues, "ls", "-", consumers, channels)
    assert.matches("\ndb +waits +w +2023%-11%-14T22:13:21Z +tag +<a.9>\n$", apart)
    assert.equal(apart, run(0, BELL .. CONSUMERS .. at_bell("<c.1>", "w") .. CHANNELS .. "<c.1>\t<a.9>\t0", "ls", "-"))
  end)

  it("takes no row for the names of columns, and no name for one with other characters", function()
    local text = QUEUES .. queue("name") .. queue("queue_name") .. queue("a\27[31m-mutex", held '"h"', "<a.1.2.0>")
      .. queue("a\194\133b-mutex", held '"h"', "<a.1.2.0>") .. queue("a\255-mutex", held '"h"', "<a.1.2.0>")
      .. queue(("x"):rep(300) .. "-mutex", held '"h"', "<a.1.2.0>") .. queue("db-mutex", held '"h"', "<a.1.2.0>")
    assert.matches("^db  ", lines(text, "-"))
    assert.equal(1, select(2, lines(text, "-"):gsub("\n", "")))
  end)

  it("counts the lines that it does not understand", function()
    local output, told = run(0, QUEUES .. "a\tb-mutex\t[]\t\t1\t0\t0\n" .. queue("db-mutex", '{"x', "<a.1.2.0>")
      .. "short\n", "ls", "-")
    assert.matches("\ndb +mutex +%- +%- +%- +<a.1.2.0>\n$", output)
    assert.matches("3 lines were not understood, the first is line 2", told)
  end)
end)

describe("amqp-lock-admin ls, of JSON,", function()
  it("reads answers one after another, of pages and of one object, and cleans them", function()
    local text = [[{"items":[{"name":"db-mutex","vhost":"/","arguments":{"x-amqplocks-holder":"a\u001b\u0000b\u0085☃",
      "x-amqplocks-acquired-at":1700000000,"x-amqplocks-ticket":"t"}},
      {"name":"x\u0000-mutex","vhost":"/","arguments":{}}]}
      [{"consumer_tag":"t","queue":{"name":"db-mutex","vhost":"/"},"arguments":{},"channel_details":{"name":"c (1)",
      "connection_name":"c"}}]
      {"name":"one-mutex","vhost":"v","arguments":[]} []
    ]]
    assert.equal([[
{"vhost":"/","name":"db","kind":"mutex","state":"holds",
"what":"mutex","holder":"a??b?☃","since":1700000000,"ticket":"t","connection":"c"}
{"vhost":"v","name":"one","kind":"mutex","state":"holds","what":"mutex"}
]], (run(0, text, "ls", "--json-output", "-"):gsub('"holds",("what":"mutex","holder)', '"holds",\n%1')))
    assert.matches("^VHOST +NAME", run(0, text, "ls", "--json", "-"))
  end)

  it("reads which consumer of a fast mutex is active", function()
    local consumer = '{"consumer_tag":"%s","active":%s,"activity_status":"%s",'
      .. '"queue":{"name":"db-fastmutex","vhost":"/"},'
      .. '"arguments":{"x-amqplocks-holder":"%s","x-amqplocks-waiting-since":1700000000},'
      .. '"channel_details":{"name":"c (1)","connection_name":"c %s"}}'
    local text = '[{"name":"db-fastmutex","vhost":"/","arguments":{},"messages":1,"messages_ready":0,'
      .. '"messages_unacknowledged":1}] [' .. consumer:format("t1", "false", "waiting", "a", "a") .. ","
      .. consumer:format("t2", "true", "single_active", "b", "b") .. "]"
    assert.equal([[
{"vhost":"/","name":"db","kind":"fast_mutex","state":"holds",
"what":"fast mutex","holder":"b","since":1700000000,"ticket":"t2","connection":"c b"}
{"vhost":"/","name":"db","kind":"fast_mutex","state":"waits",
"what":"waits for the fast mutex","holder":"a","since":1700000000,"ticket":"t1","connection":"c a"}
]], (run(0, text, "ls", "--json-output", "-"):gsub(',"what":', ',\n"what":')))
  end)

  for what, arguments in pairs {
    ["keys with a NUL"] = [["a\u0000":{"\\\u0000":"\u0000"}]],
    ["numbers beyond 63 bits"] = '"a":18446744073709551615',
    ["deep arguments"] = ('"a":{'):rep(3000) .. '"b":[1]' .. ("}"):rep(3000),
    ["deep lists"] = '"a":' .. ("["):rep(3000) .. ("]"):rep(3000), ["brackets in texts"] = [["a":"]}\"\\","]":"{"]],
    ["another list"] = '"items":[{"name":"x"}]',
  } do
    it("reads a queue with " .. what .. ", and those beside it", function()
      local one = '{"name":"%s-mutex","vhost":"/","arguments":{"x-amqplocks-holder":"h",%s}}'
      local list = ("[%s,%s,%s]"):format(one:format("a", '"b":1'), one:format("db", arguments),
        one:format("z", '"b":1'))
      for _, text in ipairs { list, '{"page":1,"items":' .. list .. ',"page_count":1}',
        (list:sub(2, -2):gsub("},{", "} {")) } do
        local output, told = run(0, text, "ls", "--json", "-")
        assert.equal("a mutex h - - -\ndb mutex h - - -\nz mutex h - - -\n",
          (output:gsub("^[^\n]+\n", ""):gsub("  +", " ")))
        assert.equal("", told)
      end
    end)
  end

  it("counts the rows that it cannot read, of all files", function()
    local text = [[[{"name":"a-mutex","arguments":{"a":"\ud800"}},{"name":"db-mutex","vhost":"/","arguments":{}},
      {"name":}] ]]
    local output, told = run(0, text, "ls", "-", file(text))
    assert.matches("\ndb +mutex", output)
    assert.equal("amqp-lock-admin: 4 of the queues, consumers and channels could not be read\n", told)
  end)

  it("keeps virtual hosts apart", function()
    local one = '{"name":"s-1-%s","vhost":"%s","arguments":{}}'
    assert.equal("a 0 of 1\nb 1 of 1\n", (lines(("[" .. one .. "," .. one .. "," .. one .. "]"):format("A", "a", "A",
      "b", "B",
      "a"), "-"):gsub("(%S+) +s +(%d of %d)[^\n]*", "%1 %2"):gsub("[^\n]* slot 1[^\n]*\n", "")))
  end)

  it("reads what rabbitmqctl --formatter json prints, and tells that it has no connection to close", function()
    local text = '[\n{"name":"db-mutex","arguments":[["x-amqplocks-holder","longstr","h"],'
      .. '["x-amqplocks-acquired-at","long",1700000000]],"owner_pid":"#PID<1.2.3>"}\n'
      .. ',{"name":"q","arguments":[],"owner_pid":""}\n]\n'
    assert.matches("^db +mutex +h +2023", lines(text, "-"))
    assert.matches("leave the formatter out", run(0, text, "holders", "-"))
  end)
end)

describe("amqp-lock-admin holders", function()
  it("quotes every text for the shell, and prints what is hostile in comments of one line", function()
    local text = QUEUES .. queue("it's;$(x)`x`-mutex", held [["h\n'rm -rf'\nx"]], "<a'b\27.1.2.0>")
    local output = run(0, text, "holders", "-")
    assert.equal(2, select(2, output:gsub("\n", "")))
    assert.matches("^# [^\n]*h%?'rm %-rf'%?x", output)
    local words = process.shell("sh", "-c", 'rabbitmqctl() { printf "<%s>" "$@"; }; . "$1"', "sh", file(output))
    assert.equal("<close_connection><<a'b?.1.2.0>><closed by an operator for it's;$(x)`x`: mutex>", words)
  end)

  it("says what is missing where the connection is not told", function()
    assert.matches("\n# its connection is not told", run(0, QUEUES .. queue("db-mutex", held '"h"'), "holders", "-"))
  end)
end)

describe("amqp-lock-admin, as a filter,", function()
  it("refuses what is none of these tables, and what is broken", function()
    for _, case in ipairs {
      { "", "is empty" }, { "\n", "names of the columns" }, { (queue("db-mutex")), "names of the columns" },
      { "user\ttags\nguest\t[administrator]\n", "names of the columns" }, { '[{"name":', "no JSON at byte" },
      { "{error,timeout}", "no JSON at byte" }, { '{"name":"db-mutex"]', "no JSON at byte" },
      { '[{"user":"guest"}]', "lists neither" }, { "[1]", "lists neither" },
      { ("\0"):rep(100), "names of the columns" },
      { '{"error":"not_authorised","reason":"Login \\u001bfailed"}', "not_authorised, Login %?failed" },
      { ("["):rep(100000), "no JSON at byte" },
    } do
      local output, told = run(64, case[1], "ls", "-")
      assert.equal("", output)
      assert.matches(case[2], told)
    end
  end)

  it("without files prints the commands that make them, and fails", function()
    for _, verb in ipairs { "ls", "holders" } do
      local output, told = run(64, "", verb)
      assert.equal("", output)
      assert.matches("rabbitmqctl %-q list_queues name arguments owner_pid .*| amqp%-lock%-admin " .. verb .. " %-\n",
        told)
      assert.matches("list_consumers [^\n]* active ", told)
      assert.matches("/api/queues/.*| amqp%-lock%-admin " .. verb .. " %-%-json %-\n", told)
    end
    local _, told = run(64, "", "ls", "/no/such/file")
    assert.matches("/no/such/file: No such file", told)
  end)

  it("skips terms that are nested deep", function()
    local deep = ('{"x-deep",%s},'):format(("[{"):rep(200000) .. ("}]"):rep(200000))
    assert.matches("^db +mutex +h ", lines(QUEUES .. queue("db-mutex", deep .. held '"h"', "<a.1.2.0>"), "-"))
  end)

  it("reads megabytes", function()
    local all = { QUEUES }
    for i = 1, 60000 do all[#all + 1] = queue(("lock%d-mutex"):format(i), held '"h"', "<a.1.2.0>") end
    all[#all + 1] = CONSUMERS
    for i = 1, 40000 do all[#all + 1] = ('same-bell\t<c.%d>\ttag\t[{"x-amqplocks-holder","w%d"}]\n'):format(i, i) end
    assert.equal(100001, select(2, run(0, table.concat(all), "ls", "-"):gsub("\n", "")))
  end)

  -- The same inputs in each run.
  it("survives inputs with random changes: prints no control character, and ends with 0 or 64", function()
    local seed = 20240229
    local function random(most)
      seed = seed * 16807 % 2147483647
      return math.floor(seed / 256) % most + 1
    end
    local table_text = QUEUES .. queue("s-1-A") .. queue("s-1-B", held [["a\"b\x{2603}\n"]], "<a.1.2.0>")
      .. queue("db-mutex", held "[119,9731]", "<a.1.2.0>") .. queue("p.semaphore", '{"b",<<"x">>}', "", 5, 2)
      .. queue("f-fastmutex", "", "", 1, 0) .. "queue_name\tchannel_pid\tactive\targuments\n"
      .. "f-fastmutex\t<c.2>\ttrue\t[]\nf-fastmutex\t<c.3>\tfalse\t[]\n" .. CONSUMERS
      .. 'db-mutexbell\t<c.1>\ttag\t[{"x-amqplocks-holder","w"},{"x-priority",-1}]\n' .. CHANNELS
      .. "<c.1>\t<a.9>\t0\n"
    local json_text = [=[[{"name":"db-mutex","vhost":"/","arguments":{"x-amqplocks-holder":"a\u001b",
      "x":[1,{"a":null}]},"messages":1}] [{"consumer_tag":"t","queue":{"name":"db-mutexbell","vhost":"/"},
      "channel_details":{"name":"c"}}]]=]
    local parts = { '"', "\\", "[", "{", "]", "}", ",", "\t", "\n", "\r", "\0", "\27", "\255", "<<", ">>", "\\x{",
      "99999999999999999999",
      "-", "\194\133", "name", '{"x-amqplocks-holder","', "\\u0000", "null" }
    local place = command.place() .. "/fuzz"
    process.shell("mkdir", place)
    for i = 1, 100 do
      local text = i % 2 == 0 and table_text or json_text
      for _ = 1, random(6) do
        local at, cut = random(#text), random(4) == 1 and random(30) or random(2) - 1
        text = text:sub(1, at - 1) .. parts[random(#parts)] .. text:sub(at + cut)
      end
      process.write(("%s/%d"):format(place, i), text)
    end
    assert.equal("", process.shell("bash", "-c", [==[
      verbs=(ls holders "ls --json-output") n=0 # one for each input: the parser is the same
      for file in "$1"/*; do
        status=0 verb=${verbs[$((n++ % 3))]}
        "$2" $verb "$file" >>"$1.out" 2>>"$1.err" || status=$?
        [ $status = 0 ] || [ $status = 64 ] || echo "$verb $file: status $status"
      done
      for what in out err; do ! tr -d '\n' <"$1.$what" | LC_ALL=C grep -aoE '.{0,99}[[:cntrl:]]'; done]==], "bash",
      place, ADMIN))
  end)
end)
