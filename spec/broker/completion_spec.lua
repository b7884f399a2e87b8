-- SPDX-License-Identifier: MIT
-- SPDX-FileCopyrightText: the amqp-locks authors

-- Completion for bash, zsh and fish: what they offer for a command line. (It needs no broker. It is here because it
-- needs the commands.)
local command = require "spec.support.command"
local process = require "spec.support.process"
local values = require "spec.support.programs.values"

-- Each prints, for each of its arguments, the words that complete that line, and then a line of its own.
local SHELLS = {
  bash = { "bash", "--norc", "-c", [==[
    . src/cli/common/completion.bash
    for line; do
      read -ra COMP_WORDS <<<"${line//=/ = }"
      [ "$line" = "${line% }" ] || COMP_WORDS+=("")
      COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
      entry=$(complete -p "${COMP_WORDS[0]}") entry=${entry#complete -F }
      "${entry% *}" "${COMP_WORDS[0]}" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
      printf '%s\n' "${COMPREPLY[@]}" .
    done]==], "bash" },
  fish = { "fish", "--no-config", "-c", [==[
    source src/cli/common/completion.fish
    for line in $argv; complete -C $line | string replace -r '\t.*' ''; echo .; end]==] },
  -- Its completion works only at a terminal, for a line that is edited. Each addition of words is noted.
  zsh = { "zsh", "-f", "-c", [==[
    export ZDOTDIR=$(mktemp -d) ASKED=${(F)@}
    cp src/cli/common/completion.zsh $ZDOTDIR/_amqp-lock
    print -r '
      fpath=($ZDOTDIR $fpath) LISTMAX=10000
      autoload -Uz compinit && compinit -D -u
      compadd() {
        local -a words
        [[ " ${(j: :)@[1,(i)(-|--)]}" == *" -"[OAD]* ]] || { builtin compadd -A words "$@"; print -rl -- $words >&7; }
        builtin compadd "$@"
      }
      zle-line-init() {
        for line in "${(@f)ASKED}"; do BUFFER=$line CURSOR=$#line; zle list-choices; print . >&7; done
        BUFFER=exit; zle accept-line
      }
      zle -N zle-line-init' >$ZDOTDIR/.zshrc
    zmodload zsh/zpty && zpty shell 'zsh -i 7>$ZDOTDIR/words' && while zpty -r shell drawn; do :; done
    cat $ZDOTDIR/words; rm -r $ZDOTDIR]==], "zsh" },
}

-- Returns for each line the words that complete it, sorted, each once; of files without their directories. One-letter
-- options, which bash does not offer, are left out.
local function offered(shell, lines)
  local script = { "env", "PATH=" .. command.DIRECTORY .. ":" .. os.getenv "PATH", values.unpack(SHELLS[shell]) }
  for _, line in ipairs(lines) do table.insert(script, line) end
  local all, seen = { {} }, {}
  for word in process.shell(values.unpack(script)):gmatch "[^\n]+" do
    word = word:gsub("^%-%-[%l-]+=", ""):gsub("^.*/", "")
    if word == "." then
      table.sort(all[#all])
      table.insert(all, {})
      seen = {}
    elseif not seen[word] and not word:find "^%-.?$" then
      table.insert(all[#all], word)
      seen[word] = true
    end
  end
  assert.equal(#lines + 1, #all)
  return all
end

-- The options that --help shows, sorted, each once.
local function shown(program, ...)
  local options, seen = {}, {}
  for line in process.shell(command.DIRECTORY .. "/" .. program, ...):gmatch "[^\n]+" do
    local option = line:match "^  %-%a, (%-%-[%l-]+)" or line:match "^      (%-%-[%l-]+)"
    if option and not seen[option] then table.insert(options, option) end
    seen[option or ""] = true
  end
  table.sort(options)
  return options
end

local ARGUMENTS = {
  ["--on-lost "] = "ignore kill term", ["--on-lost=te"] = "term", ["--on-lost="] = "ignore kill term",
  ["--on-revoke USR"] = "USR1 USR2", ["-S --url-file src/pla"] = "place", ["--held-file src/pla"] = "place",
  ["-w "] = "", ["sleep"] = "", ["db -c src/pla"] = "", ["--hold db sleep"] = "", ["db amqp-lock --hold x sleep"] = "",
  ["db cat -n src/pla"] = "place", ["db sleep"] = "sleep", ["--timeout 5 -n db sleep"] = "sleep",
  ["--on-lost=kill db sleep"] = "sleep", ["-- db sleep"] = "sleep",
}
local OF_ADMIN = {
  ["-q resi"] = "resize", ["--timeout 5 rev"] = "revoke", ["ls src/pla"] = "place",
  ["holders --json src/pla"] = "place", ["create db --url-file src/pla"] = "place",
  ["create --url-file=src/pla"] = "place", ["create src/pla"] = "", ["create db --timeout "] = "",
}

for shell in pairs(SHELLS) do
  it("completion for " .. shell .. " offers what --help shows; arguments, files, commands where they stand", function()
    local options, verbs = shown("amqp-lock", "--help"), {}
    local help = process.shell(command.DIRECTORY .. "/amqp-lock-admin", "--help")
    for verb in help:match "\nVerbs[^\n]*\n(.-\n)\n":gmatch "  ([%l-]+)[^\n]*\n" do table.insert(verbs, verb) end
    table.sort(verbs)
    assert.is_true(#options > 25 and #verbs > 10)
    local lines = { "amqp-lock -", "amqp-lock -w 5 -S --", "amqp-lock-admin ", "amqp-lock-admin -" }
    local wanted = { options, options, verbs, shown("amqp-lock-admin", "--help") }
    for _, verb in ipairs(verbs) do
      table.insert(lines, "amqp-lock-admin " .. verb .. " db -q --")
      table.insert(wanted, shown("amqp-lock-admin", verb, "--help"))
    end
    for program, rows in pairs { ["amqp-lock "] = ARGUMENTS, ["amqp-lock-admin "] = OF_ADMIN } do
      for line, words in pairs(rows) do
        table.insert(lines, program .. line)
        table.insert(wanted, { words ~= "" and words or nil })
      end
    end
    local got = offered(shell, lines)
    for i, line in ipairs(lines) do assert.equal(table.concat(wanted[i], " "), table.concat(got[i], " "), line) end
  end)
end
