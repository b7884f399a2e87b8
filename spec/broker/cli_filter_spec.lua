-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- amqp-lock-admin ls and holders, with inputs of every sort: what is read of them, and that hostile ones do no harm. No
-- broker is asked.
local command = require "spec.support.command"
local process = require "spec.support.process"

local ADMIN = command.DIRECTORY .. "/amqp-lock-admin"

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

local function quoted(text) return '"' .. text:gsub('[%c"\\]', function(c) return ("\\u%04x"):format(c:byte()) end)
  .. '"' end

-- Rows as rabbitmqctl prints them with --formatter=json. Arguments are pairs, in JSON.
local function queue(name, arguments, messages, ready)
  return ('[{"name":%s,"arguments":[%s],"messages":%d,"messages_ready":%d}]\n'):format(quoted(name), arguments or "",
    messages or 0, ready or 0)
end

local function argument(name, value) return ('["%s","longstr",%s]'):format(name, value) end

local function consumer(name, channel, holder, since, active, more)
  local arguments = { holder and argument("x-amqplocks-holder", quoted(holder)) }
  table.insert(arguments, since and argument("x-amqplocks-waiting-since", since))
  table.insert(arguments, more)
  return ('[{"queue_name":%s,"channel_pid":"#PID<1.%s>","consumer_tag":"tag%s","arguments":[%s]%s}]\n'):format(
    quoted(name), channel, channel, table.concat(arguments, ","), active and ',"active":' .. active or "")
end

-- The channel's connection is "NAME -> b".
local function channel(pid, connection, unacked)
  return ('[{"pid":"#PID<1.%s>","name":"%s -> b (1)","user":"u","messages_unacknowledged":%d}]\n'):format(pid,
    connection, unacked)
end

-- A queue that is held, with the consumer and the channel of its holder.
local function held(name, holder, pid)
  local arguments = argument("x-amqplocks-ticket", '"0123456789abcdef"') .. "," .. argument("x-amqplocks-holder",
    quoted(holder)) .. "," .. argument("x-amqplocks-acquired-at", 1700000000)
  return queue(name, arguments) .. (pid and consumer(name, pid) .. channel(pid, "a" .. pid, 0) or "")
end

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

describe("amqp-lock-admin ls", function()
  it("shows marks that nobody sees or that turn a text around, and cuts what is wide; JSON has all of it", function()
    local turn, wide = "\226\128\174", ("☃"):rep(64)
    local name = "a" .. turn .. "b\226\128\139\226\129\166c\239\187\191\194\173"
    local shown = "a<U+202E>b<U+200B><U+2066>c<U+FEFF><U+00AD>"
    local text = held(name .. "-mutex", name, 2) .. held("w-mutex", wide .. "☃", 3) .. held("x-mutex", wide, 4)
    for verb, times in pairs { ls = 2, holders = 3 } do -- the reason that holders gives names the lock as well
      local output = run(0, text, verb, "-")
      assert.is_nil(output:find(turn, 1, true) or output:find(wide .. "☃", 1, true))
      assert.equal(times, select(2, output:gsub((shown:gsub("%p", "%%%0")), "")), output)
      assert.is_truthy(output:find(wide .. "…", 1, true) and output:find(wide .. "[ ,]"), output)
    end
    assert.equal(name, run(0, text, "ls", "--json-output", "-"):match '"name":"(a.-)"')
  end)

  it("shows one line for each holder, and how many slots and permits are free", function()
    local text = queue "s-2-A" .. queue "s-10-A" .. queue "s-1-A" .. held("s-2-B", "h", 2) .. held("s-11-B", "old", 3)
      .. queue("p.semaphore", "", 5, 2) .. queue("p.semaphore-count", "", 5, 5) .. queue "other" .. queue "s-2-B-bolt"
      .. queue "s-bell" .. held("s-admin", "adm", 4)
    assert.equal([[
p 2 of 5 permits free - - - - -
s 2 of 3 slots free - - - - -
s slot 2 h 2023-11-14T22:13:20Z 0123456789abcdef u a2 -> b
s slot 11 (removed) old 2023-11-14T22:13:20Z 0123456789abcdef u a3 -> b
s administrator adm 2023-11-14T22:13:20Z 0123456789abcdef u a4 -> b
]], rows(text, "-"))
    assert.equal("", lines(text, "--lock", "none", "-"))
  end)

  local BELL = held("db-mutex", "h", 2) .. queue "db-mutexbell"
  local function at_bell(holder, more) return consumer("db-mutexbell", 1, holder, 1700000001, nil, more) end

  for _, case in ipairs {
    { "waits, by its channel", at_bell "w" .. channel(1, "a9", 0), "waits" },
    { "was woken, by its channel", at_bell "w" .. channel(1, "a9", 1), "waits, was woken" },
    { "is the holder with its token", at_bell "h" .. channel(1, "a2", 1), nil },
    { "waits, of the holder's connection", at_bell "h" .. channel(1, "a2", 0), "waits" },
    { "waits, without channels", at_bell "w", "waits" },
    { "has the holder's name, without channels", at_bell "h", "waits or holds" },
    { "is the holder before all others", at_bell("w", argument("x-priority", 2147483647)), nil },
    { "is of version 0.1.0", consumer("db-mutexbell", 1), "waits" },
  } do
    it("shows a consumer at a bell that " .. case[1], function()
      assert.equal("mutex" .. (case[3] and ", " .. case[3] or ""), values_of("what", BELL .. case[2]))
    end)
  end

  it("shows waiters in the order in which they are served: by priority, then by arrival", function()
    local function waiter(holder, since, priority)
      return consumer("db-mutexbell", 1, holder, since, nil, argument("x-priority", priority))
    end
    assert.equal("h, c, a, b", values_of("holder", BELL .. waiter("b", 1700000002, 0) .. waiter("a", 1700000001, 0)
      .. waiter("c", 1700000003, 5)))
  end)

  local FAST_HELD, FAST_IDLE = queue("db-fastmutex", nil, 1, 0), queue("db-fastmutex", nil, 1, 1)
  local A, B = { "db-fastmutex", 3, "a", 1700000000 }, { "db-fastmutex", 4, "b", 1700000001 }
  local function at_fast(who, active) return consumer(who[1], who[2], who[3], who[4], active) end

  local ACTIVE_B = at_fast(A, "false") .. at_fast(B, "true")
  local UNTOLD = at_fast(A) .. at_fast(B)
  for _, case in ipairs {
    { "the active consumer, as the token is out", FAST_HELD .. ACTIVE_B, "holds, waits; b, a" },
    { "no consumer, as the token is not out yet", FAST_IDLE .. ACTIVE_B, "waits, waits; b, a" },
    { "the active consumer, whose channel says so", FAST_IDLE .. ACTIVE_B .. channel(4, "x1", 1),
      "holds, waits; b, a" },
    { "the active consumer, as messages unacknowledged are told", '[{"name":"db-fastmutex","arguments":[],'
      .. '"messages_unacknowledged":1}]' .. ACTIVE_B, "holds, waits; b, a" },
    { "one consumer, though the next one had the token when channels were listed", FAST_HELD .. ACTIVE_B
      .. channel(3, "x1", 1) .. channel(4, "x1", 0), "holds, waits; b, a" },
    { "the consumer whose channel has the token, where it is not told which one is active", FAST_HELD .. UNTOLD
      .. channel(3, "x1", 0) .. channel(4, "x1", 1), "waits, holds; a, b" },
    { "one consumer or the other, where nothing tells", FAST_HELD .. UNTOLD, "holds_or_waits, holds_or_waits; a, b" },
    { "the active consumer or nobody, where queues tell no messages", '[{"name":"db-fastmutex","arguments":[]}]'
      .. ACTIVE_B, "holds_or_waits, waits; b, a" },
  } do
    it("shows as the holder of a fast mutex " .. case[1], function()
      assert.equal(case[3], values_of("state", case[2]) .. "; " .. values_of("holder", case[2]))
    end)
  end

  it("shows a fast mutex by holder and waiters; one that is free not at all, as no mutex", function()
    assert.equal([[
db fast mutex b 2023-11-14T22:13:21Z tag4 u x1 -> b
db waits for the fast mutex a 2023-11-14T22:13:20Z tag3 - -
]], rows(FAST_HELD .. ACTIVE_B .. channel(4, "x1", 1), "-"))
    assert.equal("", lines(FAST_IDLE, "-"))
    assert.equal("", lines(queue("db-fastmutex", nil, 0, 0), "-"))
  end)

  it("shows a fast mutex that is held, by whom the list of queues alone does not tell", function()
    assert.equal("db fast mutex - - - - -\n", rows(FAST_HELD, "-"))
    assert.matches("\n# its connection is not told: the lists of consumers", run(0, FAST_HELD, "holders", "-"))
  end)

  it("reads several files, takes no name with other characters, and texts for nothing else", function()
    local waiter = at_bell "w"
    local apart = run(0, BELL, "ls", "-", file(waiter), file(channel(1, "a9", 0)))
    assert.matches("\ndb +waits +w +2023%-11%-14T22:13:21Z +tag1 +u +a9 %-> b\n$", apart)
    assert.equal(apart, run(0, BELL .. waiter .. channel(1, "a9", 0), "ls", "-"))
    local text = held("a\27[31m-mutex", "h") .. held("a\194\133b-mutex", "h") .. held(("x"):rep(300) .. "-mutex", "h")
    for _, value in ipairs { "null", "12", "{}", "[1]", '""' } do
      text = text .. queue("db-mutex", argument("x-amqplocks-holder", value))
    end
    assert.equal(("db mutex - - - - -\n"):rep(5), rows(text, "-"))
  end)

  -- Each of `line` is a session that holds the first lock and waits for the second, by one connection.
  local function circle(line, from)
    local text, number = "", from or 10
    for who, has, wants in line:gmatch "(%l)(%u)(%u)" do
      number = number + 2
      text = text .. held(has .. "-mutex", who, number) .. consumer(wants .. "-mutexbell", number + 1, who, 1700000001)
        .. channel(number + 1, "a" .. number, 0)
    end
    return text
  end

  it("names a deadlock of any length, once, and none where a session can go on", function()
    local told = "deadlock: %s waits for the mutex %s of %s, %s waits for the mutex %s of %s\n"
    local two = run(0, circle "aXYbYX", "ls", "-")
    assert.equal(told:format("b", "X", "a", "a", "Y", "b"), two:match "^[^\n]+\n")
    assert.equal(1, select(2, two:gsub("deadlock", "")))
    local three = circle "aXYbYZcZX" .. circle("dVX", 40) -- d waits for a, and is in no circle
    assert.equal("deadlock: a waits for the mutex Y of b, b waits for the mutex Z of c, c waits for the mutex X of a\n",
      run(0, three, "ls", "--lock", "Y", "-"):match "^[^\n]+\n")
    assert.equal(3, select(2, run(0, three, "ls", "--json-output", "-"):gsub('"deadlock":true', "")))
    assert.is_nil(run(0, circle "aXYbYZ", "ls", "-"):find "deadlock")
    assert.is_nil(run(0, circle "aXYbYX" .. consumer("Q-mutexbell", 13, "a", 1700000001), "ls", "-"):find "deadlock",
      "a has two coroutines")
    local slots = circle "aXSbSX":gsub("S%-mutexbell", "S-bell"):gsub("S%-mutex", "S-1-B") .. queue "S-1-A"
    assert.matches("^deadlock: a waits for the slot S of b, b waits for the mutex X of a\n", run(0, slots, "ls", "-"))
    for _, free in ipairs { queue "S-2-A", queue "S-2-A" .. held("S-2-B", "free", 30) } do
      assert.is_nil(run(0, slots .. free, "ls", "-"):find "deadlock")
    end
    local writer = circle "aXWbWX":gsub("W%-mutexbell", "W-rwbell"):gsub("W%-mutex", "W-writer")
    assert.matches("^deadlock: a waits for the rwlock W of b, b waits for the mutex X of a\n", run(0, writer, "ls",
      "-"))
  end)

  it("reads answers of the API one after another, of pages and of one object, and cleans them", function()
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
        assert.equal("a mutex h - - - -\ndb mutex h - - - -\nz mutex h - - - -\n",
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
end)

describe("amqp-lock-admin holders", function()
  it("quotes every text for the shell, and prints what is hostile in comments of one line", function()
    local text = held("it's;$(x)`x`-mutex", "h\n'rm -rf'\nx", 2):gsub("a2 %->", "a'2 ->")
    local output = run(0, text, "holders", "-")
    assert.equal(3, select(2, output:gsub("\n", "")))
    assert.matches("^# '[^\n]*h%?'\\''rm %-rf'\\''%?x[^\n]*'\n# ask it first: [^\n]*\n", output)
    local words = process.shell("bash", "-c", [[
      rabbitmqctl() { [ "$2" != list_connections ] || printf "pid\tname\n<q>\tca'2 -> b\n<p>\ta'2 -> b\n"
        [ "$1" != close_connection ] || printf "<%s>" "$@"; }
      amqp-lock-admin() { printf "<%s>" "$@"; }
      . "$1"; eval "$(sed -n 's/^# ask it first: //p; 1s/^#/: /p' "$1")"]], "bash", file(output))
    assert.equal("<close_connection><<p>><closed by an operator for it's;?(x)?x?: mutex><revoke><-m><it's;$(x)`x`>",
      words)
  end)

  it("says what is missing where the connection is not told", function()
    assert.matches("\n# its connection is not told", run(0, held("db-mutex", "h"), "holders", "-"))
  end)
end)

describe("amqp-lock-admin, without files,", function()
  -- Runs it where rabbitmqctl is this script, and no API answers; it must end with this status.
  local function ask(script, status, url, ...)
    local place = command.place()
    process.write(place .. "/rabbitmqctl", "#!/bin/sh\n" .. script)
    process.shell("chmod", "+x", place .. "/rabbitmqctl")
    return command.ends({ program = ADMIN, env = { PATH = place .. ":" .. os.getenv "PATH", HOME = place,
      AMQP_URL = url } }, status, ...)
  end

  local LISTS = 'echo "$*" >>"$0.log"; case "$*" in *list_queues*) cat <<"."\n' .. held("db-mutex", "h") .. '.\n'
    .. ';; *list_consumers*) cat <<"."\n' .. consumer("db-mutex", 2) .. '.\n;; *) cat <<"."\n' .. channel(2, "a2", 0)
    .. ".\nesac\n"

  it("asks rabbitmqctl for the URL's virtual host if no API answers, and tells that with -v", function()
    local output = ask(LISTS, 0, "amqp://u:secret@127.0.0.9/a%20b", "who", "-v", "db")
    assert.matches("^amqp%-lock%-admin: told by rabbitmqctl\nNAME [^\n]+\ndb +mutex +h [^\n]+ u +a2 %-> b\n\n"
      .. "# 'db, mutex: held by h, since [^\n]+'\n# ask it first: amqp%-lock%-admin revoke %-m 'db'\n"
      .. "rabbitmqctl close_connection [^\n]+'\n$", output)
    assert.equal(2, select(2, process.contents(command.place() .. "/rabbitmqctl.log"):gsub("%-p a b ", "")))
    assert.equal("x: no client holds it, and none waits (told by rabbitmqctl)\n",
      ask(LISTS, 0, "amqp://127.0.0.9", "who", "x"))
    assert.matches("^NAME +WHAT[^\n]+\ndb +mutex +h ", ask(LISTS, 0, "amqp://127.0.0.9", "ls"))
    assert.equal("db: mutex, 1 held, 0 waiting\n", ask(LISTS, 0, "amqp://127.0.0.9", "status", "-m", "db"))
    assert.equal('{"name":"db","kind":"fast_mutex","held":0,"waiting":0}\n', ask(LISTS, 0, "amqp://127.0.0.9", "status",
      "--fast", "--json", "db"))
    local door = 'case "$*" in *list_queues*) cat <<"."\n' .. held("db-writer", "w")
      .. held("db-reader-0123456789abcdef", "r") .. ".\n;; *) echo '[]';; esac\n"
    assert.equal("db: write, 0 held, 1 waiting\n", ask(door, 0, "amqp://127.0.0.9", "status", "-W", "db"))
    assert.equal("db: read, 1 held, 1 waiting\n", ask(door, 0, "amqp://127.0.0.9", "status", "-r", "db"))
  end)

  local API = "^amqp%-lock%-admin: unreachable: [^\n]+; rabbitmqctl: " -- without libcurl it is not asked
  for _, case in ipairs {
    { "rabbitmqctl fails", 'echo >&2; echo "Error: no node" >&2; exit 69',
      API .. "status 69: Error: no node; next: " },
    { "rabbitmqctl is silent", "sleep 600", API .. "no answer in time" },
    { "rabbitmqctl prints no list", "echo hello", API .. "no JSON at byte" },
    { "one of its lists fails", LISTS:gsub(";; %*%)", ";; *) exit 70 ;; x)"), API .. "status 70: " },
  } do
    it("says in one message what was tried, why that failed, and what is next, where " .. case[1], function()
      local began = os.time()
      local output = ask(case[2], 69, "amqp://u:secret@127.0.0.9", "who", "-w", "2", "db")
      assert.matches(case[3], output)
      assert.equal(1, select(2, output:gsub("\n", "")))
      assert.is_nil(output:find("secret", 1, true))
      assert.is_true(os.time() - began < 30)
    end)
  end

  it("does not ask this machine's rabbitmqctl about another broker, nor with a vhost that a shell would run", function()
    assert.matches("rabbitmqctl: not asked, as its shell", ask(LISTS, 69, "amqp://127.0.0.9/%24(id)", "ls"))
    assert.matches("rabbitmqctl: status 1: its broker does not listen on port 5673; next: ",
      ask('case "$*" in *status*) echo "{port:[{\\"port\\":56730},{\\"port\\":5672}]}";; *) exit 70;; esac', 69,
        "amqp://127.0.0.9:5673", "who", "x"))
    assert.matches("; rabbitmqctl: not asked, as 2001:db8::1 is another",
      ask(LISTS, 69, "amqp://[2001:db8::1]", "ls", "-w", "0.2"))
  end)
end)

describe("amqp-lock-admin, as a filter,", function()
  it("refuses what is none of these tables, and what is broken", function()
    for _, case in ipairs {
      { "", "is empty" }, { "name\targuments\n", "no JSON at byte [^\n]*of rabbitmqctl %-%-formatter=json" },
      { '[{"name":', "no JSON at byte" },
      { "{error,timeout}", "no JSON at byte" }, { '{"name":"db-mutex"]', "no JSON at byte" },
      { '[{"user":"guest"}]', "lists neither" }, { "[1]", "lists neither" },
      { ("\0"):rep(100), "no JSON at byte" }, { '[{"name":"x","arguments":[]}]\0', "no JSON at byte" },
      { '{"error":"not_authorised","reason":"Login \\u001bfailed"}', "not_authorised, Login %?failed" },
      { ("["):rep(100000), "no JSON at byte" },
    } do
      local output, told = run(64, case[1], "ls", "-")
      assert.equal("", output)
      assert.matches(case[2], told)
    end
  end)

  it("reads megabytes", function()
    local all = {}
    for i = 1, 60000 do all[#all + 1] = held(("lock%d-mutex"):format(i), "h") end
    for i = 1, 40000 do all[#all + 1] = consumer("same-bell", i, "w" .. i) end
    assert.equal(100001, select(2, run(0, table.concat(all), "ls", "-"):gsub("\n", "")))
  end)

  -- The same inputs in each run.
  it("survives inputs with random changes: prints no control character, and ends with 0 or 64", function()
    local seed = 20240229
    local function random(most)
      seed = seed * 16807 % 2147483647
      return math.floor(seed / 256) % most + 1
    end
    local ctl_text = queue "s-1-A" .. held("s-1-B", 'a"b☃', 2) .. held("db-mutex", "☃", 3)
      .. queue("p.semaphore", "", 5, 2) .. queue("f-fastmutex", "", 1, 0)
      .. consumer("f-fastmutex", 2, "a", 1700000000, "true") .. consumer("f-fastmutex", 3, "b", 1700000000, "false")
      .. consumer("db-mutexbell", 2, "w", 1700000001)
    local json_text = [=[[{"name":"db-mutex","vhost":"/","arguments":{"x-amqplocks-holder":"a\u001b",
      "x":[1,{"a":null}]},"messages":1}] [{"consumer_tag":"t","queue":{"name":"db-mutexbell","vhost":"/"},
      "channel_details":{"name":"c"}}]]=]
    local parts = { '"', "\\", "[", "{", "]", "}", ",", "\t", "\n", "\r", "\0", "\27", "\255", "<<", ">>", "\\x{",
      "99999999999999999999",
      "-", "\194\133", "name", '{"x-amqplocks-holder","', "\\u0000", "null" }
    local place = command.place() .. "/fuzz"
    process.shell("mkdir", place)
    for i = 1, 100 do
      local text = i % 2 == 0 and ctl_text or json_text
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
