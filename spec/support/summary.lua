-- SPDX-FileCopyrightText: the amqp-locks authors
-- SPDX-License-Identifier: MIT

-- An output handler for busted. It prints a line for each spec file, the failures in full, and at the end, on a line of
-- its own, "N passed, N failed". A spec that could not run counts as failed. With $SUMMARY_FILE the two numbers go to
-- that file, followed by the failures; spec/support/suite combines these files. The line of a file is then written at
-- its end, in one write, since several processes write to the same place.

local pretty = require "pl.pretty"

return function(options)
  local busted = require "busted"
  local handler = require "busted.outputHandlers.base"()
  local summary = os.getenv "SUMMARY_FILE"
  local file, began, before

  local function write(...)
    io.stdout:write(...)
    io.stdout:flush()
  end

  local function counts()
    return handler.successesCount, handler.failuresCount + handler.errorsCount, handler.pendingsCount
  end

  local function describe(out, kind, entry)
    local trace = entry.element.trace or {}
    local message = entry.message == nil and "no message" or entry.message
    if type(message) ~= "string" then message = pretty.write(message) end
    out:write("\n", kind, ": ", entry.name, "\n")
    if trace.short_src then out:write("  ", trace.short_src, ":", tostring(trace.currentline), "\n") end
    out:write("  ", (message:gsub("\n", "\n  ")), "\n")
    if kind == "error" and entry.trace and entry.trace.traceback then
      out:write("  ", (entry.trace.traceback:gsub("\n", "\n  ")), "\n")
    end
  end

  local function file_start(element)
    file, began, before = element.name, busted.monotime(), { counts() }
    if not summary then write(file, " ... ") end
    return nil, true
  end

  local function file_end()
    local passed, failed, pending = counts()
    passed, failed, pending = passed - before[1], failed - before[2], pending - before[3]
    local words = { passed .. " passed" }
    if failed > 0 then table.insert(words, failed .. " FAILED") end
    if pending > 0 then table.insert(words, pending .. " pending") end
    table.insert(words, ("%.1f s\n"):format(busted.monotime() - began))
    write((summary and file .. " ... " or "") .. table.concat(words, ", "))
    return nil, true
  end

  local function suite_end()
    local passed, failed = counts()
    if options.verbose then
      for _, entry in ipairs(handler.pendings) do write("pending: ", entry.name, "\n") end
    end
    local out = summary and assert(io.open(summary, "w")) or io.stdout
    if summary then out:write(passed, " ", failed, "\n") end
    for _, entry in ipairs(handler.failures) do describe(out, "failed", entry) end
    for _, entry in ipairs(handler.errors) do describe(out, "error", entry) end
    if summary then out:close() else write(passed, " passed, ", failed, " failed\n") end
    return nil, true
  end

  local subscribe = handler.subscribe
  function handler:subscribe(given)
    subscribe(self, given or options)
    busted.subscribe({ "file", "start" }, file_start)
    busted.subscribe({ "file", "end" }, file_end)
    busted.subscribe({ "suite", "end" }, suite_end)
  end

  return handler
end
