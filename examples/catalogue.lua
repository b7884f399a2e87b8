-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors
--
-- A catalogue file that many processes read and some rewrite: readers share the lock, and a writer is alone. When a
-- writer has written, it continues as a reader, without a gap for another writer, to read what it has written.
--
--   catalogue.lua                    starts three readers and two writers, prints what they do, and a summary
--   catalogue.lua read FILE NAME     one of them, which reads, or writes, three times
--   catalogue.lua write FILE NAME
--
-- The broker is AMQP_URL, or on localhost. No administrator has to create the readers–writer lock "catalogue".

local amqplocks = require "amqplocks"

local role, path, name = arg[1], arg[2], arg[3]
io.stdout:setvbuf "line"

local function say(text) print(name, text) end

local function pause(seconds) assert(os.execute("sleep " .. seconds)) end

-- ---- the catalogue: three lines of one edition, or none -------------------------------------------------------------

local function write_edition(edition)
  local file = assert(io.open(path, "w"))
  for _, article in ipairs { "apples", "pears", "plums" } do
    file:write(article, " edition ", edition, "\n")
    file:flush()
    pause(0.05)
  end
  file:close()
end

local function read_edition()
  local edition, lines
  for line in io.lines(path) do
    edition, lines = edition or line:match "%d+$", (lines or 0) + 1
    assert(edition == line:match "%d+$", "editions are mixed")
    pause(0.05)
  end
  assert(not edition or lines == 3, "the catalogue is not complete")
  return tonumber(edition) or 0
end

-- ---- readers and writers
-- ---------------------------------------------------------------------------------------------

local function read()
  say "begins to read"
  say("has read edition " .. read_edition())
end

local function write(lock)
  say "begins to write"
  local edition = read_edition() + 1
  write_edition(edition)
  say "lets readers in"
  assert(lock:downgrade()) -- from here on it is one of the readers
  assert(read_edition() == edition, "another writer was here")
  say("has read edition " .. edition)
  assert(lock:held())
end

local function use(catalogue)
  local function wait(_, why) say("waits: " .. why) end
  for _ = 1, 3 do
    if role == "read" then
      assert(catalogue:with_read({ on_wait = wait }, read))
    else
      assert(catalogue:with_write({ on_wait = wait }, write))
    end
    pause(0.1)
  end
end

-- ---- all together ---------------------------------------------------------------------------------------------------

-- Without a broker all of the processes would fail, so this checks first.
local function start()
  assert(amqplocks.connect()):close()
  path = os.tmpname()
  local command = ""
  for _, one in ipairs { "read reader-1", "read reader-2", "read reader-3", "write writer-1", "write writer-2" } do
    local what, who = one:match "(%S+) (%S+)"
    command = command .. ('"%s" "%s" %s %s %s 2>&1 & '):format(arg[-1], arg[0], what, path, who)
  end
  return assert(io.popen(command .. "wait"))
end

-- Counts readers and writers by the lines that each prints while it holds the lock.
local function watch(everybody)
  local readers, writers, most, editions = 0, 0, 0, 0
  for line in everybody:lines() do
    print(line)
    if line:find "begins to read" then readers = readers + 1 end
    if line:find "has read" then readers = readers - 1 end
    if line:find "begins to write" then writers = writers + 1 end
    if line:find "lets readers in" then writers, readers, editions = writers - 1, readers + 1, editions + 1 end
    assert(writers == 0 or writers == 1 and readers == 0, "a writer was not alone")
    most = math.max(most, readers)
  end
  os.remove(path)
  assert(editions == 6, "not every writer has written")
  return editions, most
end

if role then
  use(assert(amqplocks.connect()):rwlock "catalogue")
else
  print(("%d editions, each written by one alone; up to %d read together"):format(watch(start())))
end
