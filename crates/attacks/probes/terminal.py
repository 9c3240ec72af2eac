# Puts characters into the input of the controlling terminal. `own` makes a terminal first.
import fcntl
import pty
import termios

TIOCSTI, TIOCLINUX, TIOCSETD, TIOCCONS = 0x5412, 0x541C, 0x5423, 0x541D
HIGH = 1 << 32
IOCTL = 16

if ARGS.get("own"):
    os.setsid() if os.getpid() != os.getsid(0) else None
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    terminal = slave
else:
    terminal = 0


def push(request):
    syscall(IOCTL, terminal, request, b"x")


attempt("TIOCSTI", lambda: push(TIOCSTI), fork=False)
attempt("TIOCSTI with high bits", lambda: push(TIOCSTI | HIGH), fork=False)
attempt("TIOCLINUX", served(lambda: push(TIOCLINUX)), fork=False)
attempt("TIOCLINUX with high bits", served(lambda: push(TIOCLINUX | HIGH)), fork=False)
report("is a terminal", os.isatty(terminal))
