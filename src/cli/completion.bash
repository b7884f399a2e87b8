# shellcheck shell=bash
# SPDX-FileCopyrightText: the amqp-locks authors
# SPDX-License-Identifier: MIT
#
# Completion for bash, of amqp-lock and amqp-lock-admin. The options and verbs are those that the command's own --help
# shows, so that they are never others.

# Prints a line for each option of a command: its long name, its letter, and the word for its argument.
_amqp_lock_options() { # COMMAND
  "$1" --help 2>/dev/null | sed -nE 's/^  (-(.),|   ) --([a-z-]+)( ([A-Z]+))?( .*)?$/\3|\2|\5/p'
}

# Prints the verbs: in the --help of amqp-lock-admin a line for each, and before it the word "Verbs".
_amqp_lock_verbs() { # COMMAND
  "$1" --help 2>/dev/null | sed -nE '/^Verbs/,/^$/s/^  ([a-z]+)( .*)?$/\1/p'
}

# The arguments of an option, by the word that stands for them.
_amqp_lock_argument() { # OPTION WORD CURRENT
  case $1:$2 in
    --on-lost:*) mapfile -t COMPREPLY < <(compgen -W 'term kill ignore' -- "$3") ;;
    --on-revoke:*) mapfile -t COMPREPLY < <(compgen -W "ignore $(compgen -A signal SIG | sed s/^SIG//)" -- "$3") ;;
    *:FILE)
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -f -- "$3")
      ;;
  esac
}

# What amqp-lock runs: completed as if it stood alone, where bash-completion can do that.
_amqp_lock_command() { # INDEX CURRENT
  local offset
  for offset in _comp_command_offset _command_offset; do
    declare -F "$offset" >/dev/null && { "$offset" "$1"; return; }
  done
  if [ "$1" = "$COMP_CWORD" ]; then mapfile -t COMPREPLY < <(compgen -c -- "$2"); else
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$2")
  fi
}

_amqp_lock() { # COMMAND
  local current=${COMP_WORDS[COMP_CWORD]} wanted='' options='' operands=() long letter word i
  local -A name=() argument=()
  COMPREPLY=()
  while IFS='|' read -r long letter word; do
    options+=" --$long"
    name["--$long"]=--$long argument["--$long"]=$word
    [ -z "$letter" ] || name["-$letter"]=--$long argument["-$letter"]=$word
  done < <(_amqp_lock_options "$1")

  # The words before this one. `wanted` is an option that still needs its argument; bash makes "=" a word of its own.
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if [ -n "$wanted" ]; then
      [ "$word" = = ] || wanted=
    elif [ "${#operands[@]}" = 0 ] && [ "$word" = -- ]; then
      continue
    elif [ -n "${argument[$word]:-}" ]; then
      wanted=$word
    elif [[ $word != -* ]]; then
      operands+=("$i")
      # After its NAME amqp-lock reads no options: a command begins there.
      [[ $1 == *-admin || ${#operands[@]} -lt 2 ]] || break
    fi
    [ "$word" != -c ] || [ "${#operands[@]}" = 0 ] || return 0
  done
  [ "$current" != = ] || current=

  if [ -n "$wanted" ]; then
    _amqp_lock_argument "${name[$wanted]}" "${argument[$wanted]}" "$current"
  elif [[ $1 == *-admin && ${#operands[@]} = 0 && $current != -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_amqp_lock_verbs "$1")" -- "$current")
  elif [[ $1 != *-admin && ${#operands[@]} -gt 0 ]]; then
    [[ " ${COMP_WORDS[*]:1:operands[0]} " == *" --hold "* ]] || _amqp_lock_command $((operands[0] + 1)) "$current"
  elif [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$current")
  fi
}

complete -F _amqp_lock amqp-lock amqp-lock-admin
