"""TLS: results and images cross the wire only between certificates of one authority."""

import datetime
import ipaddress
import socket

import pytest

pytest.importorskip("pydicom"), pytest.importorskip("highdicom"), pytest.importorskip("pynetdicom")

from cryptography import x509  # noqa: E402
from cryptography.hazmat.primitives import hashes, serialization  # noqa: E402
from cryptography.hazmat.primitives.asymmetric import ec  # noqa: E402
from cryptography.x509.oid import NameOID  # noqa: E402

from fclseg.errors import FCLSegError, PassingError  # noqa: E402
from fclseg.inbox.log import Log  # noqa: E402
from fclseg.inbox.queue import Queue  # noqa: E402
from fclseg.inbox.receiver import Receiver  # noqa: E402
from fclseg.inbox.sender import _associate  # noqa: E402
from fclseg.inbox.settings import Caller, Node, Settings, Tls  # noqa: E402

MR_IMAGE = "1.2.840.10008.5.1.4.1.1.4"
NOW = datetime.datetime.now(datetime.UTC)


def certificate(folder, name, authority=None):
    """A certificate for 127.0.0.1; signed by an authority, or its own."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer, signer = authority or (subject, key)
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - datetime.timedelta(days=1))
        .not_valid_after(NOW + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=authority is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(signer, hashes.SHA256())
    )
    (folder / f"{name}.pem").write_bytes(built.public_bytes(serialization.Encoding.PEM))
    (folder / f"{name}.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return subject, key


@pytest.fixture
def files(tmp_path):
    """A hospital's authority with two certificates, and a stranger's."""
    hospital = certificate(tmp_path, "hospital")
    certificate(tmp_path, "inbox", hospital)
    certificate(tmp_path, "archive", hospital)
    certificate(tmp_path, "stranger")
    return tmp_path


def tls(files, name, authority="hospital"):
    return Tls(files / f"{name}.pem", files / f"{name}.key", files / f"{authority}.pem")


def test_only_certificates_of_the_authority_are_let_in(files):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    settings = Settings(files / "queue", port=port, callers=(Caller("ARCHIVE"),), tls=tls(files, "inbox"))
    receiver = Receiver(settings, Queue(settings.folder), Log())
    receiver.start()
    node = Node("FCLSEG", "127.0.0.1", port)
    try:
        for own, lets_in in ((tls(files, "archive"), True), (tls(files, "stranger"), False), (None, False)):
            caller = Settings(files / "other", title="ARCHIVE", send_to=node, tls=own)
            if lets_in:
                association = _associate(caller, [(MR_IMAGE,)])
                association.release()
            else:
                with pytest.raises(PassingError, match="cannot be reached"):
                    _associate(caller, [(MR_IMAGE,)])
    finally:
        receiver.stop()


def test_files_that_are_no_certificates_are_named(tmp_path):
    (tmp_path / "a.pem").write_text("nothing")
    with pytest.raises(FCLSegError, match=r"--tls .*a\.pem: cannot be used .*; give PEM files"):
        Tls(tmp_path / "a.pem", tmp_path / "a.pem", tmp_path / "a.pem").context(server=True)
