"""What makes a broker ask who is there: TLS, passwords, and who may see which topic."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ADMIN, READER = "admin", "reader"
PASSWORDS = {ADMIN: "admin-knows-this-only", READER: "reader-knows-this-only"}
STORE_PASSWORD = "of-the-key-store"
_ALL = "SASL_SSL"


@dataclass(frozen=True, slots=True)
class Login:
    """A broker's own certificate, and its two users; who is not the admin may do what was granted."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Login:
        """A new certificate for this machine's loopback address."""
        folder.mkdir(parents=True)
        made = cls(folder)
        _keytool(
            made.store, "-genkeypair", "-keyalg", "RSA", "-dname", "CN=broker", "-ext", "san=ip:127.0.0.1"
        )
        _keytool(made.store, "-exportcert", "-rfc", "-file", str(made.certificate))
        return made

    @property
    def certificate(self) -> Path:
        return self.folder / "certificate.pem"

    @property
    def store(self) -> Path:
        """The broker's key and certificate."""
        return self.folder / "broker.p12"

    def broker(self) -> Mapping[str, str]:
        users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        return {
            "listener.security.protocol.map": f"{_ALL}:{_ALL},CONTROLLER:PLAINTEXT",
            "security.inter.broker.protocol": _ALL,
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            f"listener.name.{_ALL.lower()}.plain.sasl.jaas.config": (
                f'{module} required username="{ADMIN}" password="{PASSWORDS[ADMIN]}" {users};'
            ),
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(self.store),
            "ssl.keystore.password": STORE_PASSWORD,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificate),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            # The controller's own listener has no login.
            "super.users": f"User:{ADMIN};User:ANONYMOUS",
        }

    def client(self, user: str, password: str | None = None) -> dict[str, str]:
        """librdkafka's properties for a user."""
        return {
            "security.protocol": _ALL,
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": PASSWORDS[user] if password is None else password,
            "ssl.ca.location": str(self.certificate),
        }


def _keytool(store: Path, *arguments: str) -> None:
    tool = str(Path(os.environ["JAVA_HOME"], "bin", "keytool")) if "JAVA_HOME" in os.environ else "keytool"
    where = (
        "-alias",
        "broker",
        "-storetype",
        "PKCS12",
        "-keystore",
        str(store),
        "-storepass",
        STORE_PASSWORD,
    )
    done = subprocess.run(
        [tool, *arguments, *where], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
