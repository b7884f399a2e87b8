# SPDX-FileCopyrightText: the amqp-locks authors
# SPDX-License-Identifier: MIT
#
# Completion for fish, of amqp-lock and amqp-lock-admin, for each of which it is installed once. The options and verbs
# are those that the command's own --help shows, so that they are never others.

function __amqp_lock_help # COMMAND [VERB]
    command -q $argv[1]; and $argv --help 2>/dev/null
end
function __amqp_lock_options # COMMAND [VERB]: a line for each option that --help shows, as LETTER/LONG|ARGUMENT|WORDS
    __amqp_lock_help $argv | sed -nE 's/^  (-(.),|   ) --([a-z-]+)( ([A-Z]+))? +(.*)$/\2\/\3|\5|\6/p' | sed 's/^\///'
end

# How argparse finds the operands: options of amqp-lock end with the first. LETTER/LONG= is an option with an argument.
set -l as_specs 's/\|\|.*//; s/\|.*/=/'
set -g __amqp_lock_how --stop-nonopt (__amqp_lock_options amqp-lock | sed -E $as_specs | sort -u)
set -g __amqp_lock_admin_how --ignore-unknown (__amqp_lock_options amqp-lock-admin | sed -E $as_specs | sort -u)

function __amqp_lock_operands # HOW...: prints the operands before the word that is completed, or fails
    argparse $argv -- (commandline -opc)[2..-1] 2>/dev/null; and set -q argv[1]; and printf '%s\n' $argv
end

function __amqp_lock_command # what amqp-lock runs, as if it stood alone
    set -l words (__amqp_lock_operands $__amqp_lock_how)
    set -l before (commandline -opc)
    set -e before[(math (count $before) - (count $words) + 1)..-1]
    contains -- --hold $before; or test "$words[2]" = -c; and return
    complete --do-complete="$(string join ' ' -- (string escape -- $words[2..-1]) (commandline -ct))"
end

function __amqp_lock_offer # CONDITION COMMAND [VERB]
    for row in (__amqp_lock_options $argv[2..-1])
        set -l part (string split -m 2 '|' -- $row)
        set -l names (string split / -- $part[1])
        set -l how -d $part[3] -l $names[-1] (test $names[1] = $names[-1]; or printf '%s\n' -s $names[1])
        switch $names[-1]:$part[2]
            case 'on-lost:*'
                set -a how -x -a 'term kill ignore'
            case 'on-revoke:*'
                set -a how -x -a "ignore $(command kill -l | string join ' ')"
            case '*:FILE' '*:PATH'
                set -a how -r -F
            case '*:?*'
                set -a how -x
        end
        complete -c $argv[2] -n $argv[1] $how
    end
end

complete -c amqp-lock -e; complete -c amqp-lock-admin -e; complete -c amqp-lock-admin -f
complete -c amqp-lock -f -n '__amqp_lock_operands $__amqp_lock_how' -a '(__amqp_lock_command)'
__amqp_lock_offer 'not __amqp_lock_operands $__amqp_lock_how' amqp-lock
__amqp_lock_offer 'not __amqp_lock_operands $__amqp_lock_admin_how' amqp-lock-admin
for row in (__amqp_lock_help amqp-lock-admin | sed -nE '/^Verbs/,/^$/s/^  ([a-z-]+) (\S+ )*  +(.*)$/\1|\3/p')
    set -l part (string split -m 1 '|' -- $row)
    set -l when "test $part[1] = \"\$(__amqp_lock_operands \$__amqp_lock_admin_how)[1]\""
    complete -c amqp-lock-admin -n 'not __amqp_lock_operands $__amqp_lock_admin_how' -a $part[1] -d $part[2]
    __amqp_lock_offer $when amqp-lock-admin $part[1]
    contains $part[1] ls holders; and complete -c amqp-lock-admin -n $when -F
end
