"""Sites with real certificates and a server between them, all in this process. Everything the server sees is kept."""

import datetime

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fclseg.secure_sums.collector import Collector
from fclseg.secure_sums.identity import CertifiedSite, RootTrust
from fclseg.secure_sums.masks import Shape, Vector
from fclseg.secure_sums.member import Member
from fclseg.secure_sums.occasion import Occasion
from fclseg.secure_sums.records import SumRecords


class Authority:
    """A root certificate and the certificates that it signs."""

    def __init__(self, folder, name="root"):
        self.folder = folder / name
        self.folder.mkdir(parents=True)
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = self._signed(name, self.key.public_key(), name)
        self.path = self.folder / "rootCA.pem"
        self.path.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))

    def _signed(self, name, public, issuer, days=30, role=None):
        subject, by = ([x509.NameAttribute(NameOID.COMMON_NAME, text)] for text in (name, issuer))
        subject += [x509.NameAttribute(NameOID.UNSTRUCTURED_NAME, role)] if role else []
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name(subject))
            .issuer_name(x509.Name(by))
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=60))
            .not_valid_after(now + datetime.timedelta(days=days))
            .sign(self.key, hashes.SHA256())
        )

    def issue(self, name, days=30, role=None):
        key = ec.generate_private_key(ec.SECP256R1())
        paths = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        certificate = self._signed(name, key.public_key(), self.certificate.subject.rfc4514_string()[3:], days, role)
        paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        paths[1].write_bytes(key.private_bytes(*form))
        return CertifiedSite(*paths)


class Federation:
    """``names`` sites of one authority; ``run_sum`` goes through the five steps."""

    def __init__(self, folder, count=4, fewest=3):
        self.folder, self.fewest = folder, fewest
        self.authority = Authority(folder)
        self.trust = RootTrust(self.authority.path, "server.org")
        self.names = [f"site-{number}" for number in range(1, count + 1)]
        self.identities = {name: self.authority.issue(name) for name in self.names}
        self.seen = []  # (step, site, answer): everything that reaches the server

    def member(self, name, occasion):
        records = SumRecords(self.folder / name / occasion.run.split("-")[0], self.folder / name / "summed")
        return Member(self.identities[name], self.trust, occasion, records, self.fewest)

    def run_sum(self, occasion, vectors, gone=None, context="sent to all", update=""):
        """``gone``: {site: the first step that it does not answer}; ``update``: a name for these vectors. Returns the
        collector after the last step."""
        gone, steps = gone or {}, ("keys", "shares", "masked", "agreement", "reveal")

        def ask(step, names, question, accept):
            """A new ``Member`` each time: the task may run in another process."""
            for name in names:
                if name in gone and steps.index(gone[name]) <= steps.index(step):
                    continue
                answer = question(name, self.member(name, occasion))
                self.seen.append((step, name, answer))
                accept(name, answer)

        collector = Collector(occasion, self.trust, self.fewest)
        ask("keys", self.names, lambda name, member: member.keys(), collector.accept_keys)
        collector.check_enough("keys", len(collector.roster.sites))
        roster = collector.roster.to_dict()
        ask("shares", list(roster), lambda name, member: member.shares(roster), collector.accept_shares)
        collector.check_enough("shares", len(collector.sharing))
        collector.start(next(iter(vectors.values())).shape, context)
        ask(
            "masked",
            collector.sharing,
            lambda name, member: member.masked(
                collector.inbox(name), context, lambda sites: copied(vectors[name]), update
            ),
            collector.accept_vector,
        )
        collector.check_enough("masked", len(collector.survivors))
        survivors = list(collector.survivors)
        ask("agreement", survivors, lambda name, member: member.agreement(survivors), collector.accept_agreement)
        collector.check_enough("agreement", len(collector.signatures))
        signatures = dict(collector.signatures)
        ask("reveal", list(signatures), lambda name, member: member.reveal(signatures), collector.accept_reveal)
        return collector


def copied(vector):
    return Vector(vector.shape, vector.narrow.copy(), vector.wide.copy())


def random_vectors(names, shape, seed=0):
    random = np.random.default_rng(seed)
    most = 2 ** (shape.bits - 1) // (2 * len(names))
    return {
        name: Vector.of(shape, random.integers(-most, most, shape.narrow), random.integers(-(2**50), 2**50, shape.wide))
        for name in names
    }


def plain_sum(vectors, names):
    """The obvious sum of signed integers."""
    pairs = [vectors[name].signed() for name in names]
    return sum(narrow for narrow, _ in pairs), sum(wide for _, wide in pairs)


def occasion(number=0, attempt=1, task="pretrain", run="run"):
    return Occasion(run, number, task, attempt)


SHAPE = Shape(narrow=1000, wide=7, bits=12)
