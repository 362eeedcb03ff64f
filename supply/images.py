"""Pins the images of the stack: `python -m supply.images` writes the digest behind each tag, by Docker.

An image is named by version and digest then (`postgres:16.11-bookworm@sha256:...`), so that no other one can
be put under the tag. It needs Docker and a registry that answers; a digest that is there is asked again.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILES = ("docker/Dockerfile", "docker-compose.yml")
_IMAGE = re.compile(r"^(FROM |\s+image: )([\w./-]+:[\w.-]+)(@sha256:[0-9a-f]{64})?$", re.MULTILINE)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def digest_of(image: str) -> str:
    """The digest behind a tag, for all platforms at once.

    Raises:
        SystemExit: Docker is not there, or the registry does not answer.
    """
    command = ["docker", "buildx", "imagetools", "inspect", image, "--format", "{{.Manifest.Digest}}"]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    except FileNotFoundError:
        raise SystemExit("Docker is not installed, and it is what asks the registry.") from None
    if done.returncode or not _DIGEST.fullmatch(done.stdout.strip()):
        said = (done.stderr.strip().splitlines() or ["it gave no digest"])[-1]
        raise SystemExit(f"The registry did not answer for {image}: {said}. Nothing was written.")
    return done.stdout.strip()


def pinned(text: str) -> str:
    """A file's text with the digest behind each image's tag."""
    return _IMAGE.sub(lambda one: f"{one[1]}{one[2]}@{digest_of(one[2])}", text)


def main(root: Path = ROOT) -> None:
    """Write them: all, or none."""
    texts = {root / name: pinned((root / name).read_text(encoding="utf-8")) for name in FILES}
    for file, text in texts.items():
        file.write_text(text, encoding="utf-8")
    print(f"{sum(len(_IMAGE.findall(text)) for text in texts.values())} images are named by digest.")


if __name__ == "__main__":
    main()
    sys.exit(0)
