# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: the amqp-locks authors

"""Runs a program for spec/support/command.lua, and tells how it ended.

    launch.py BASE SPEC_PID [pty] [input] [ignore=SIGNAL]... [close=FD]... [fd=FD]... -- PROGRAM ARGUMENT...

BASE.log gets its standard output and error; BASE.pid its number, and this process's; BASE.status "exit N" or "signal N" once it has ended.
With `input`, its standard input is the fifo BASE.in, otherwise /dev/null. With `pty`, it is the leader of a session whose
terminal shows in BASE.log what is printed, and gets what is written to the fifo BASE.in. `fd`: this descriptor writes to
BASE.fd.

It is a subreaper: what the program leaves behind becomes its child. All of that is killed at TERM, and when the process
SPEC_PID has ended.
"""
import ctypes
import fcntl
import os
import select
import signal
import sys
import termios

PR_SET_CHILD_SUBREAPER = 36


def write_file(path, text):
    with open(path + ".new", "w") as file:
        file.write(text)
    os.rename(path + ".new", path)


def child(base, how, words, slave):
    if slave is not None:
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        for fd in range(3):
            os.dup2(slave, fd)
    else:
        source = os.open(base + ".in" if "input" in how else "/dev/null", os.O_RDONLY)
        log = os.open(base + ".log", os.O_WRONLY | os.O_APPEND)
        os.dup2(source, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
    os.closerange(3, 256)
    for usual in range(1, signal.SIGSYS + 1):
        if usual not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(usual, signal.SIG_DFL)
    for name in how:
        key, _, value = name.partition("=")
        if key == "fd":
            fd = os.open(base + ".fd", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            os.dup2(fd, int(value))
            if fd != int(value):
                os.close(fd)
            os.set_inheritable(int(value), True)
        elif key == "ignore":
            signal.signal(getattr(signal, "SIG" + value), signal.SIG_IGN)
        elif key == "close":
            os.close(int(value))
    try:
        os.execvp(words[0], words)
    except OSError as problem:
        os.write(2, str(problem).encode())
        os._exit(99)


def reap(base, pid):
    while True:
        try:
            got, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if got == 0:
            return
        if got == pid:
            code = os.waitstatus_to_exitcode(status)
            write_file(base + ".status", "%s %d\n" % ("signal" if code < 0 else "exit", abs(code)))


def parent_of(pid):
    try:
        with open("/proc/%s/stat" % pid) as file:
            return int(file.read().rpartition(") ")[2].split()[1])
    except (OSError, IndexError):  # it has ended meanwhile
        return 0


def children():
    return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and parent_of(pid) == os.getpid()]


def kill_all():
    """No child's number is used again before it is waited for."""
    while True:
        for pid in children():
            os.kill(pid, signal.SIGKILL)
        try:
            os.wait()
        except ChildProcessError:
            return


def relay(source, write):
    try:
        text = os.read(source, 65536)
    except OSError:  # the other side of the terminal is closed
        return False
    if text:
        write(text)
    return bool(text)


def main():
    base, spec = sys.argv[1], int(sys.argv[2])
    end = sys.argv.index("--")
    how, words = sys.argv[3:end], sys.argv[end + 1:]
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    log = os.open(base + ".log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: None)
    master = slave = None
    if "pty" in how:
        master, slave = os.openpty()
    pid = os.fork()
    if pid == 0:
        child(base, how, words, slave)
    if slave is not None:
        os.close(slave)
    write_file(base + ".pid", "%d\n%d\n" % (pid, os.getpid()))
    source = os.open(base + ".in", os.O_RDONLY | os.O_NONBLOCK) if master is not None else None
    watched = [fd for fd in (wake_read, master) if fd is not None]
    while os.path.exists("/proc/%d" % spec):
        ready = select.select(watched + ([source] if source is not None else []), [], [], 0.5)[0]
        if master in ready and not relay(master, lambda text: os.write(log, text)):
            watched.remove(master)
        if source in ready and not relay(source, lambda text: os.write(master, text)):
            os.close(source)
            source = os.open(base + ".in", os.O_RDONLY | os.O_NONBLOCK)
            select.select([], [], [], 0.01)
        if wake_read in ready:
            reap(base, pid)
            if signal.SIGTERM in os.read(wake_read, 4096):
                break
    kill_all()


main()
