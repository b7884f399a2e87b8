-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Completion for bash: what it offers for a command line. (It needs no broker. It is here because it needs the
-- command.)
local command = require "spec.support.command"
local process = require "spec.support.process"
local values = require "spec.support.programs.values"

local AMQP_LOCK, AMQP_LOCK_ADMIN = command.DIRECTORY .. "/amqp-lock", command.DIRECTORY .. "/amqp-lock-admin"

-- Returns the words that complete the last word of a command line, sorted.
local function offered_of(program, ...)
  local words = process.shell("bash", "--norc", "-c", [[
    . src/cli/common/completion.bash
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

  it("offers the arguments of an option, also behind an equals sign, and commands and files behind the name", function()
    for line, words in pairs {
      ["--on-lost @"] = "ignore kill term", ["--on-lost = te"] = "term", ["--on-lost ="] = "ignore kill term",
      ["--on-revoke USR"] = "USR1 USR2", ["-S --url-file src/pla"] = "src/place", ["-w -"] = "",
      ["db cat -n src/pla"] = "src/place", ["sleep"] = "", ["db -c sleep"] = "", ["--hold db sleep"] = "",
    } do
      local list = {}
      for word in line:gmatch "%S+" do table.insert(list, word == "@" and "" or word) end
      assert.equal(words, table.concat(offered(values.unpack(list)), " "), line)
    end
    for _, words in ipairs { { "db" }, { "--timeout", "5", "-n", "db" }, { "--on-lost", "=", "kill", "db" },
      { "--", "db" } } do
      table.insert(words, "sleep")
      assert.matches(" sleep ", " " .. table.concat(offered(values.unpack(words)), " ") .. " ")
    end
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
    for _, words in ipairs { { "ls" }, { "holders", "--json" }, { "create", "db", "--url-file" },
      { "create", "--url-file", "=" } } do
      table.insert(words, "src/pla")
      assert.same({ "src/place" }, offered_to_admin(values.unpack(words)))
    end
    assert.same({}, offered_to_admin("create", "src/pla"))
    assert.same({}, offered_to_admin("create", "db", "--timeout", ""))
  end)
end)
