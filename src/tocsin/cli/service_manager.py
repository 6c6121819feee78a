"""Words to the service manager that started this process: it is ready, it stops (systemd, `Type=notify`)."""

from __future__ import annotations

import logging
import os
import socket
from typing import Final

log = logging.getLogger("tocsin")

VARIABLE: Final = "NOTIFY_SOCKET"


def tell(*states: str) -> None:
    """Send states, such as READY=1, to the service manager; do nothing where none asks for them.

    One that cannot be told is a warning: the variable may come from a service in which somebody opened a shell.
    """
    address = os.environ.get(VARIABLE)
    if not address:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.connect("\0" + address[1:] if address.startswith("@") else address)
            channel.sendall("\n".join(states).encode())
    except OSError as error:
        log.warning("the service manager at %s=%s cannot be told %s: %s", VARIABLE, address, states[0], error.strerror)
