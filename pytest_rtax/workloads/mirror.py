"""A read-only HTTP server for the bare repository, from which environments clone it.

It is a process of its own: serving a clone must not take the interpreter lock from the driver that times it. It ends
with its stdin, and so with the driver, even one that is killed.
"""

from __future__ import annotations

import os
import shutil
import socket
import socketserver
import subprocess
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, cast
from urllib.parse import unquote, urlsplit


class Mirror:
    """The driver's side: starts the server, knows its URL, ends it."""

    def __init__(self, directory: Path, host: str = "127.0.0.1") -> None:
        """Serve the *directory* that holds ``attrs.git``, on an address of this machine."""
        self._directory = directory.resolve()
        self._host = host
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    def start(self) -> None:
        """Return once it listens, or raise RepositoryUnavailable."""
        # By its path and isolated: whatever made the driver find this package need not hold for the child.
        command = [sys.executable, "-I", str(Path(__file__).resolve()), str(self._directory), self._host]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the driver, which ends this in its own time
        )
        assert self._process.stdout is not None
        port = self._process.stdout.readline()
        if not port:
            raise self._failure()
        self._port = int(port)

    def _failure(self) -> Exception:
        from pytest_rtax.workloads.repository import RepositoryUnavailable  # the server knows no package

        assert self._process is not None
        _, err = self._process.communicate()
        lines = err.decode(errors="replace").strip().splitlines()
        return RepositoryUnavailable(lines[-1] if lines else "the mirror of the repository ended; start it again")

    @property
    def url(self) -> str:
        """What to clone."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}/attrs.git"

    def close(self) -> None:
        """End the server; idempotent."""
        if self._process is not None:
            self._process.kill()  # it only reads: there is nothing to finish
            self._process.communicate()
            self._process = None

    def __enter__(self) -> Mirror:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    # Many environments may clone at once; a connection refused for want of room is tried again only after a second.
    request_queue_size = 1024

    def __init__(self, directory: Path, host: str) -> None:
        self.directory = directory
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay quiet: a client that went away is no concern of the driver."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60
    # The head and the body leave together, and at once: neither waits for the other's acknowledgement.
    wbufsize = 64 * 1024
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """A file of the repository."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """What GET would answer, without the file."""
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        file = self._open()
        if file is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        with file:
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(os.fstat(file.fileno()).st_size))
            self.end_headers()
            if with_body:
                shutil.copyfileobj(file, cast(BinaryIO, self.wfile))

    def _open(self) -> BinaryIO | None:
        """The file that the request names, if it is one below the directory."""
        directory = cast(_Server, self.server).directory
        try:
            name = unquote(urlsplit(self.path).path).lstrip("/")
            path = (directory / name).resolve()
            return path.open("rb") if path.is_relative_to(directory) and path.is_file() else None
        except (OSError, ValueError):
            return None

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def main() -> None:
    """``python -m pytest_rtax.workloads.mirror DIRECTORY HOST``: print the port, serve until stdin ends."""
    directory, host = sys.argv[1:]
    try:
        server = _Server(Path(directory).resolve(), host)
    except OSError as error:
        sys.exit(f"the mirror cannot listen on {host} ({error.strerror}); give it an address of this machine")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.server_address[1]}\n")
    sys.stdout.flush()
    sys.stdin.buffer.read()


if __name__ == "__main__":
    main()
