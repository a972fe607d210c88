"""Settings of the inbox, as the command line states them."""

import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from fclseg.errors import FCLSegError

_TITLE = r"[^\\\x00-\x1f@]{1,16}"
ANYONE = "*"


@dataclass(frozen=True)
class Caller:
    """Who may send: an application entity title, from one address or from any."""

    title: str
    address: str = ANYONE

    @classmethod
    def parse(cls, text: str) -> "Caller":
        title, _, address = text.partition("@")
        if not re.fullmatch(_TITLE, title):
            raise FCLSegError(f"--allow {text}: write TITLE or TITLE@ADDRESS, for example PACS@10.0.0.5")
        return cls(title, address or ANYONE)

    def admits(self, title: str, address: str) -> bool:
        return self.title == title and self.address in (ANYONE, address)


@dataclass(frozen=True)
class Node:
    """Where results go."""

    title: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Node":
        match = re.fullmatch(rf"({_TITLE})@(.+):(\d{{1,5}})", text)
        if match is None or not 0 < int(match[3]) < 65536:
            raise FCLSegError(f"--send {text}: write TITLE@HOST:PORT, for example PACS@10.0.0.5:104")
        return cls(match[1], match[2], int(match[3]))


@dataclass(frozen=True)
class Tls:
    """Certificate, key and the authority that must have signed the other side's certificate."""

    certificate: Path
    key: Path
    authority: Path

    def context(self, server: bool) -> ssl.SSLContext:
        try:
            purpose = ssl.Purpose.CLIENT_AUTH if server else ssl.Purpose.SERVER_AUTH
            context = ssl.create_default_context(purpose, cafile=str(self.authority))
            context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise FCLSegError(f"--tls {self.certificate}: cannot be used ({error}); give PEM files") from None
        context.verify_mode = ssl.CERT_REQUIRED
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context


@dataclass(frozen=True)
class Settings:
    folder: Path
    title: str = "FCLSEG"
    host: str = "127.0.0.1"
    port: int = 11112
    callers: tuple[Caller, ...] = ()
    send_to: Node | None = None
    watch: Path | None = None
    quiet_seconds: float = 60.0  # a study is complete if nothing arrived for this long
    keep_days: float = 7.0  # images of finished studies
    dry_run: bool = False
    verify: bool = True  # a study is done when the archive lists its results
    model: Path | None = None
    status_port: int | None = None
    tls: Tls | None = None
    retry_seconds: tuple[float, float] = field(default=(10.0, 600.0))  # first and longest wait after a failed sending
