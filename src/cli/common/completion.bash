# shellcheck shell=bash
# SPDX-FileCopyrightText: the amqp-locks authors
# SPDX-License-Identifier: MIT
#
# Completion for bash, of amqp-lock and amqp-lock-admin. The options and verbs are those that the command's own --help
# shows, so that they are never others.

# ---- what --help shows ----

# Reads the options of a command into the caller's arrays: `name` has the long form of each form, `argument` the word
# for its argument or "". `options` gets the long forms.
_amqp_lock_read_options() { # COMMAND [VERB]
  local long letter word
  options=
  while IFS='|' read -r long letter word; do
    options+=" --$long"
    name["--$long"]=--$long argument["--$long"]=$word
    [ -z "$letter" ] || name["-$letter"]=--$long argument["-$letter"]=$word
  done < <("$@" --help 2>/dev/null | sed -nE 's/^  (-(.),|   ) --([a-z-]+)( ([A-Z]+))?( .*)?$/\3|\2|\5/p')
}

# Prints the verbs of amqp-lock-admin.
_amqp_lock_verbs() { # COMMAND
  "$1" --help 2>/dev/null | sed -nE '/^Verbs/,/^$/s/^  ([a-z-]+)( .*)?$/\1/p'
}

# ---- the words before the one that is completed ----

# `operand` gets the index of the first word that is no option, or "". `wanted` gets an option that still needs its
# argument. bash makes "=" a word of its own.
_amqp_lock_read_words() { # INDEX: of the word with which to begin
  local i word
  operand='' wanted=''
  for ((i = $1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if [ -n "$wanted" ]; then
      [ "$word" = = ] || wanted=
    elif [[ $word != -* ]]; then
      operand=$i
      return
    elif [ -n "${argument[$word]:-}" ]; then
      wanted=$word
    fi
  done
}

# ---- what is offered ----

_amqp_lock_offer() { mapfile -t COMPREPLY < <(compgen "$@"); } # ARGUMENTS OF compgen

_amqp_lock_files() { # CURRENT
  compopt -o filenames 2>/dev/null
  _amqp_lock_offer -f -- "$1"
}

_amqp_lock_argument() { # OPTION WORD-FOR-ITS-ARGUMENT CURRENT
  local current=$3
  [ "$current" != = ] || current=
  case $1:$2 in
    --on-lost:*) _amqp_lock_offer -W 'term kill ignore' -- "$current" ;;
    --on-revoke:*) _amqp_lock_offer -W "ignore $(compgen -A signal SIG | sed s/^SIG//)" -- "$current" ;;
    *:FILE | *:PATH) _amqp_lock_files "$current" ;;
  esac
}

# What amqp-lock runs. With bash-completion it is completed as if it stood alone.
_amqp_lock_command() { # INDEX CURRENT
  local offset
  for offset in _comp_command_offset _command_offset; do
    ! declare -F "$offset" >/dev/null || { "$offset" "$1"; return; }
  done
  if [ "$1" = "$COMP_CWORD" ]; then _amqp_lock_offer -c -- "$2"; else _amqp_lock_files "$2"; fi
}

# Behind NAME stands a command, unless there is -c or --hold.
_amqp_lock() { # COMMAND
  local current=${COMP_WORDS[COMP_CWORD]} options operand wanted
  local -A name=() argument=()
  COMPREPLY=()
  _amqp_lock_read_options "$1"
  _amqp_lock_read_words 1
  if [ -n "$wanted" ]; then
    _amqp_lock_argument "${name[$wanted]}" "${argument[$wanted]}" "$current"
  elif [ -z "$operand" ]; then
    [[ $current != -* ]] || _amqp_lock_offer -W "$options" -- "$current"
  elif [[ " ${COMP_WORDS[*]:1:operand} " != *" --hold "* && ${COMP_WORDS[operand + 1]} != -c ]]; then
    _amqp_lock_command $((operand + 1)) "$current"
  fi
}

# The first operand is a verb, which has options of its own. ls and holders read files.
_amqp_lock_admin() { # COMMAND
  local current=${COMP_WORDS[COMP_CWORD]} options operand wanted verb
  local -A name=() argument=()
  COMPREPLY=()
  _amqp_lock_read_options "$1"
  _amqp_lock_read_words 1
  verb=${operand:+${COMP_WORDS[operand]}}
  if [ -n "$verb" ]; then
    name=() argument=()
    _amqp_lock_read_options "$1" "$verb"
    # Options stand between operands here, so only the last word can want something.
    wanted=${COMP_WORDS[COMP_CWORD - 1]}
    [ "$wanted" != = ] || wanted=${COMP_WORDS[COMP_CWORD - 2]}
    [ -n "${argument[$wanted]:-}" ] || wanted=
  fi
  if [ -n "$wanted" ]; then
    _amqp_lock_argument "${name[$wanted]}" "${argument[$wanted]}" "$current"
  elif [[ $current == -* ]]; then
    _amqp_lock_offer -W "$options" -- "$current"
  elif [ -z "$verb" ]; then
    _amqp_lock_offer -W "$(_amqp_lock_verbs "$1")" -- "$current"
  elif [ "$verb" = ls ] || [ "$verb" = holders ]; then
    _amqp_lock_files "$current"
  fi
}

complete -F _amqp_lock amqp-lock
complete -F _amqp_lock_admin amqp-lock-admin
