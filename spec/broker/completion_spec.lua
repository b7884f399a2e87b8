-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Completion for bash: what it offers for a command line. (It needs no broker. It is here because it needs the
-- command.)
local command = require "spec.support.command"
local process = require "spec.support.process"

local AMQP_LOCK, AMQP_LOCK_ADMIN = command.DIRECTORY .. "/amqp-lock", command.DIRECTORY .. "/amqp-lock-admin"

-- Returns the words that complete the last word of a command line, sorted.
local function offered_of(program, ...)
  local words = process.shell("bash", "--norc", "-c", [[
    . src/cli/completion.bash
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    entry=$(complete -p "${1##*/}") entry=${entry#complete -F }
    "${entry% *}" "$1" "${!#}" "${COMP_WORDS[COMP_CWORD - 1]}"
    for word in "${COMPREPLY[@]}"; do printf '%s\n' "$word"; done | LC_ALL=C sort -u]], "bash", program, ...)
  local list = {}
  for word in words:gmatch "[^\n]+" do table.insert(list, word) end
  return list
end

local function offered(...) return offered_of(AMQP_LOCK, ...) end
local function offered_to_admin(...) return offered_of(AMQP_LOCK_ADMIN, ...) end

-- The options that --help shows, sorted, each once.
local function shown(program, ...)
  local options, seen = {}, {}
  for line in process.shell(program, ...):gmatch "[^\n]+" do
    local option = line:match "^  %-%a, (%-%-[%l-]+)" or line:match "^      (%-%-[%l-]+)"
    if option and not seen[option] then table.insert(options, option) end
    seen[option or ""] = true
  end
  table.sort(options)
  return options
end

describe("completion of amqp-lock", function()
  it("offers every option of --help, and nothing else", function()
    local options = shown(AMQP_LOCK, "--help")
    assert.is_true(#options > 25)
    assert.same(options, offered "-")
    assert.same(options, offered("-w", "5", "-S", "--"))
  end)

  it("offers the arguments of an option, also behind an equals sign", function()
    assert.same({ "ignore", "kill", "term" }, offered("--on-lost", ""))
    assert.same({ "term" }, offered("--on-lost", "=", "te"))
    assert.same({ "ignore", "kill", "term" }, offered("--on-lost", "="))
    assert.same({ "USR1", "USR2" }, offered("--on-revoke", "USR"))
    assert.same({ "src/place" }, offered("-S", "--url-file", "src/pla"))
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

describe("completion of amqp-lock-admin", function()
  it("offers the verbs of --help, and nothing else", function()
    local verbs = {}
    for verb in process.shell(AMQP_LOCK_ADMIN, "--help"):match "\nVerbs[^\n]*\n(.-\n)\n":gmatch "  ([%l-]+)[^\n]*\n" do
      table.insert(verbs, verb)
    end
    table.sort(verbs)
    assert.is_true(#verbs > 10)
    assert.same(verbs, offered_to_admin "")
    assert.same({ "resize" }, offered_to_admin("-q", "resi"))
    assert.same({ "revoke" }, offered_to_admin("--timeout", "5", "rev"))
  end)

  it("offers every option that --help shows for the verb, and nothing else", function()
    for _, verb in ipairs(offered_to_admin "") do
      local options = shown(AMQP_LOCK_ADMIN, verb, "--help")
      assert.is_true(#options > 5, verb)
      assert.same(options, offered_to_admin(verb, "-"), verb)
      assert.same(options, offered_to_admin(verb, "db", "-q", "--"), verb)
    end
    assert.same(shown(AMQP_LOCK_ADMIN, "--help"), offered_to_admin "--")
  end)

  it("offers files to the verbs that read files, and to options that name one", function()
    assert.same({ "src/place" }, offered_to_admin("ls", "src/pla"))
    assert.same({ "src/place" }, offered_to_admin("holders", "--json", "src/pla"))
    assert.same({ "src/place" }, offered_to_admin("create", "db", "--url-file", "src/pla"))
    assert.same({ "src/place" }, offered_to_admin("create", "--url-file", "=", "src/pla"))
    assert.same({}, offered_to_admin("create", "src/pla"))
    assert.same({}, offered_to_admin("create", "db", "--timeout", ""))
  end)
end)
