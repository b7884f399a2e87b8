-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Completion for bash: what it offers for a command line. (It needs no broker. It is here because it needs the
-- command.)
local command = require "spec.support.command"
local process = require "spec.support.process"

local AMQP_LOCK = command.DIRECTORY .. "/amqp-lock"

-- What is offered where the last word is completed, sorted.
local function offered(...)
  local words = process.shell("bash", "--norc", "-c", [[
    . src/cli/completion.bash
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    entry=$(complete -p amqp-lock)
    [ "$entry" = "complete -F _amqp_lock amqp-lock" ] || exit 1
    _amqp_lock "$1" "${!#}" "${COMP_WORDS[COMP_CWORD - 1]}"
    for word in "${COMPREPLY[@]}"; do printf '%s\n' "$word"; done | LC_ALL=C sort -u]], "bash", AMQP_LOCK, ...)
  local list = {}
  for word in words:gmatch "[^\n]+" do table.insert(list, word) end
  return list
end

describe("completion of amqp-lock", function()
  it("offers every option of --help, and nothing else", function()
    local options = {}
    for line in process.shell(AMQP_LOCK, "--help"):gmatch "[^\n]+" do
      local option = line:match "^  %-%a, (%-%-[%l-]+)" or line:match "^      (%-%-[%l-]+)"
      if option then table.insert(options, option) end
    end
    table.sort(options)
    assert.is_true(#options > 25)
    assert.same(options, offered "-")
    assert.same(options, offered("-w", "5", "-S", "--"))
  end)

  it("offers the arguments of an option, also behind an equals sign", function()
    assert.same({ "ignore", "kill", "term" }, offered("--on-lost", ""))
    assert.same({ "term" }, offered("--on-lost", "=", "te"))
    assert.same({ "ignore", "kill", "term" }, offered("--on-lost", "="))
    assert.same({ "USR1", "USR2" }, offered("--on-revoke", "USR"))
    assert.same({ "src/amqplocks.h", "src/amqplocks.pc.in" }, offered("-S", "--url-file", "src/amqp"))
    assert.same({}, offered("-w", "-"))
  end)

  it("offers commands behind the name, and then files", function()
    local function offers_sleep(...)
      local found = false
      for _, word in ipairs(offered(...)) do
        assert.matches("^sleep", word)
        found = found or word == "sleep"
      end
      assert.is_true(found)
    end
    offers_sleep("db", "sleep")
    offers_sleep("--timeout", "5", "-n", "db", "sleep")
    offers_sleep("--on-lost", "=", "kill", "db", "sleep")
    offers_sleep("--", "db", "sleep")
    assert.same({ "src/place" }, offered("db", "cat", "-n", "src/pla"))
  end)

  it("offers nothing for a name, for a shell line, and behind --hold NAME", function()
    assert.same({}, offered "sleep")
    assert.same({}, offered("db", "-c", "sleep"))
    assert.same({}, offered("--hold", "db", "sleep"))
  end)
end)
