"""Secrets of one sum: X25519 keys from short seeds, keys derived from them, sealed messages and shares of a seed.

A private key is derived from a seed of 16 bytes, because this is what the library's Shamir sharing takes; 128 bits are
also the strength of X25519.
"""

import hashlib
import secrets
from collections.abc import Mapping
from itertools import islice

from Crypto.Protocol.SecretSharing import Shamir
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fclseg.secure_sums.occasion import SumError

SEED_BYTES = 16
NONCE_BYTES = 12
SEALED_TEXT = 2 * (NONCE_BYTES + 2 * SEED_BYTES + 16)
"""Characters of two sealed shares: hexadecimal, with the nonce and the tag."""


def new_seed() -> bytes:
    return secrets.token_bytes(SEED_BYTES)


def derive(secret: bytes, info: bytes) -> bytes:
    """HKDF-SHA256: a key of 32 bytes for one purpose."""
    return HKDF(hashes.SHA256(), 32, None, info).derive(secret)


def private_key(seed: bytes) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(derive(seed, b"fclseg X25519"))


def public_key(seed: bytes) -> str:
    return private_key(seed).public_key().public_bytes_raw().hex()


def agree(seed: bytes, public: str, info: bytes) -> bytes:
    """The key that this party and the owner of ``public`` have in common."""
    try:
        shared = private_key(seed).exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(public)))
    except (ValueError, TypeError):
        raise SumError("a public key of a site is invalid: it is not used") from None
    return derive(shared, info)


def commitment(seed: bytes) -> str:
    """A name for a seed that says nothing about it. It shows later whether shares gave the right seed."""
    return hashlib.sha256(derive(seed, b"fclseg commitment")).hexdigest()


def seal(key: bytes, data: bytes, bound: bytes) -> str:
    nonce = secrets.token_bytes(NONCE_BYTES)
    return (nonce + ChaCha20Poly1305(key).encrypt(nonce, data, bound)).hex()


def unseal(key: bytes, sealed: str, bound: bytes) -> bytes | None:
    """The data, or None if it was not sealed with this key for this purpose."""
    try:
        data = bytes.fromhex(sealed)
        return ChaCha20Poly1305(key).decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], bound)
    except (InvalidTag, ValueError, TypeError):
        return None


def split(seed: bytes, least: int, count: int) -> list[bytes]:
    """Shamir shares of a seed: any ``least`` of ``count`` give it back, fewer say nothing."""
    return [share for _, share in Shamir.split(least, count, seed)]


def join(shares: Mapping[int, bytes], least: int) -> bytes | None:
    """The seed from shares by their index from 0; None if there are too few."""
    if len(shares) < least:
        return None
    return Shamir.combine([(index + 1, share) for index, share in islice(sorted(shares.items()), least)])
