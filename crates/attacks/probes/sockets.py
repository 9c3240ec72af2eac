# Kinds of sockets that reach the kernel or the wire. Created only; nothing is ever sent.
import socket

AF_PACKET, AF_NETLINK, AF_ALG, AF_VSOCK, AF_KEY, AF_XDP = 17, 16, 38, 40, 15, 44
SOCKET, HIGH = 41, 1 << 32
KINDS = {
    "packet": (AF_PACKET, 3, 0x0300),
    "netlink netfilter": (AF_NETLINK, 3, 12),
    "netlink audit": (AF_NETLINK, 3, 9),
    "netlink uevent": (AF_NETLINK, 3, 15),
    "netlink diag": (AF_NETLINK, 3, 4),
    "alg": (AF_ALG, 5, 0),
    "vsock": (AF_VSOCK, 1, 0),
    "key": (AF_KEY, 3, 2),
    "xdp": (AF_XDP, 3, 0),
    "packet by its oldest name": (2, 10, 0x0300),
    "ping": (2, 2, 1),
    "raw icmp": (2, 3, 1),
    "raw ip": (2, 3, 255),
    "raw icmp6": (10, 3, 58),
}


def create(family, kind, protocol):
    os.close(syscall(SOCKET, family, kind, protocol))


for name, (family, kind, protocol) in KINDS.items():
    attempt(name, lambda: create(family, kind, protocol))
    attempt(name + " with high bits", lambda: create(family | HIGH, kind, protocol))


def raise_interface():
    import fcntl
    control = socket.socket()
    request = bytearray(struct.pack("16sH22x", b"lo", 0x1 | 0x100))
    fcntl.ioctl(control, 0x8914, request)


attempt("change an interface", raise_interface)
