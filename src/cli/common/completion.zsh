#compdef amqp-lock amqp-lock-admin
# SPDX-FileCopyrightText: the amqp-locks authors
# SPDX-License-Identifier: MIT
#
# Completion for zsh, of amqp-lock and amqp-lock-admin. The options and verbs are those that the command's own --help
# shows, so that they are never others.

# `specs` gets the options that --help shows, as _arguments takes them.
_amqp_lock_read_options() { # COMMAND [VERB]
  local row words action
  specs=()
  for row in ${(f)"$("$@" --help 2>/dev/null)"}; do
    [[ $row =~ '^  (-(.),|   ) --([a-z-]+)( ([A-Z]+))? +(.*)$' ]] || continue
    words="[${match[6]//(#m)[\[\]:\\]/\\$MATCH}]"
    case $match[3]:$match[5] in
      (*:) action= ;;
      (on-lost:*) action=':action:(term kill ignore)' ;;
      (on-revoke:*) action=":signal:(ignore ${signals[2,-3]})" ;;
      (*:(FILE|PATH)) action=':file:_files' ;;
      (*) action=":$match[5]: " ;;
    esac
    specs+=("--$match[3]${action:+=}$words$action")
    [[ -z $match[2] ]] || specs+=("-$match[2]${action:++}$words$action")
  done
}

# What amqp-lock runs is completed as if it stood alone. There is no command behind --hold, and no word of one behind -c.
_amqp_lock_command() { (( $+opt_args[--hold] )) || [[ $words[1] == -c ]] || _normal; }

_amqp_lock_admin_operands() { # behind the verb. ls and holders read files
  local verb=$words[1] operands='*: : '
  _amqp_lock_read_options $program $verb
  [[ $verb != (ls|holders) ]] || operands='*:file:_files'
  _arguments -s : $specs $operands
}

_amqp_lock() {
  setopt local_options extended_glob
  local curcontext=$curcontext program=${~words[1]} context state state_descr line
  local -a specs verbs match mbegin mend
  local -A opt_args
  _amqp_lock_read_options $program
  if [[ $service == amqp-lock ]]; then
    _arguments -s -S -A '-*' : $specs '(-)1:name: ' '(-)*:::command:_amqp_lock_command'
    return
  fi
  verbs=(${(f)"$($program --help 2>/dev/null | sed -nE '/^Verbs/,/^$/s/^  ([a-z-]+) ([^ ]+ )*  +(.*)$/\1:\3/p')"})
  _arguments -s -A '-*' : $specs '1:verb:->verb' '*:: :_amqp_lock_admin_operands'
  [[ $state != verb ]] || _describe verb verbs
}

_amqp_lock "$@"
