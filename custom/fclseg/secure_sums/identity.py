"""Who signs: a site's certificate of the federation. The server only passes signatures on, and cannot make them."""

import datetime
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.x509.oid import NameOID

from fclseg.secure_sums.occasion import SumError

_PSS = padding.PSS(mgf=padding.MGF1(hashes.SHA256()), salt_length=padding.PSS.DIGEST_LENGTH)


class Identity(Protocol):
    """What a party signs with."""

    @property
    def name(self) -> str: ...

    @property
    def credential(self) -> str:
        """What others need to check a signature, besides their own trust."""
        ...

    def sign(self, data: bytes) -> str: ...


class Trust(Protocol):
    """How a party checks the signatures of others."""

    def check(self, name: str, credential: str, signature: str, data: bytes) -> None:
        """Raises unless the party of this name has signed the data."""
        ...


@dataclass(frozen=True)
class CertifiedSite:
    """A site's startup kit: the certificate that the federation's root has signed, and its private key."""

    certificate: Path
    key: Path

    @cached_property
    def credential(self) -> str:
        return self.certificate.read_text(encoding="ascii")

    @cached_property
    def name(self) -> str:
        return _common_name(x509.load_pem_x509_certificate(self.credential.encode()))

    def sign(self, data: bytes) -> str:
        key = serialization.load_pem_private_key(self.key.read_bytes(), password=None)
        if isinstance(key, rsa.RSAPrivateKey):
            return key.sign(data, _PSS, hashes.SHA256()).hex()
        if isinstance(key, ec.EllipticCurvePrivateKey):
            return key.sign(data, ec.ECDSA(hashes.SHA256())).hex()
        raise SumError("this site's certificate has a key that cannot sign secure sums: provision it with RSA keys")


SITE_ROLES = ((), ("client",))
"""Roles in certificates of sites: those of a provisioned kit have none, those of a signed request have this one."""


@dataclass(frozen=True)
class RootTrust:
    """Trust in the federation's root certificate, from the party's own startup kit. It has also certified the server,
    leads and coordinators, who are no sites: with their keys the server could surround a hospital with parts of a sum
    that it knows."""

    root: Path
    server: str = ""  # its name, as this party's own kit says

    @cached_property
    def _root(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.root.read_bytes())

    def check(self, name: str, credential: str, signature: str, data: bytes) -> None:
        try:
            certificate = x509.load_pem_x509_certificate(credential.encode("ascii"))
            certificate.verify_directly_issued_by(self._root)
            _check_dates(certificate)
            if _common_name(certificate) != name or name == self.server or _roles(certificate) not in SITE_ROLES:
                raise ValueError(name)
            _verify(certificate.public_key(), bytes.fromhex(signature), data)
        except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError, UnicodeError):
            raise SumError(f"{name!s:.40}: a signature is not that of a certified site: it is not used") from None


@dataclass(frozen=True)
class SimulatedSite:
    """All sites of a simulation are one process or one machine of one person: names stand for certificates."""

    name: str

    @property
    def credential(self) -> str:
        return ""

    def sign(self, data: bytes) -> str:
        return _simulated_key(self.name).sign(data).hex()


class SimulatedTrust:
    def check(self, name: str, credential: str, signature: str, data: bytes) -> None:
        try:
            _simulated_key(name).public_key().verify(bytes.fromhex(signature), data)
        except (InvalidSignature, ValueError, TypeError):
            raise SumError(f"{name!s:.40}: a signature is not that of a certified site: it is not used") from None


def _simulated_key(name: str) -> ed25519.Ed25519PrivateKey:
    digest = hashes.Hash(hashes.SHA256())
    digest.update(f"fclseg simulated site {name}".encode())
    return ed25519.Ed25519PrivateKey.from_private_bytes(digest.finalize())


def _common_name(certificate: x509.Certificate) -> str:
    (entry,) = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(entry.value)


def _roles(certificate: x509.Certificate) -> tuple[str, ...]:
    found = certificate.subject.get_attributes_for_oid(NameOID.UNSTRUCTURED_NAME)
    return tuple(str(entry.value) for entry in found)


def _check_dates(certificate: x509.Certificate) -> None:
    now = datetime.datetime.now(datetime.UTC)
    if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
        raise ValueError("expired")


def _verify(key: object, signature: bytes, data: bytes) -> None:
    if isinstance(key, rsa.RSAPublicKey):
        key.verify(signature, data, _PSS, hashes.SHA256())
    elif isinstance(key, ec.EllipticCurvePublicKey):
        key.verify(signature, data, ec.ECDSA(hashes.SHA256()))
    else:
        raise ValueError("unsupported key")
