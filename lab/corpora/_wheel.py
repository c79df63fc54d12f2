"""A wheel of PyPI as a file of data: downloaded by its digest, opened by `zipfile`, and none of its code runs."""

import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile


class Refused(Exception):
    """Something that is not what its digest says."""


def check(what, data, expected):
    """Refuses bytes of another SHA-256, and names both digests."""
    got = hashlib.sha256(data).hexdigest()
    if got != expected:
        raise Refused(f"{what}: expected SHA-256 {expected}, got {got} ({len(data)} bytes)")


def wheel(package, version, sha256, at=None):
    """The bytes of a wheel, from the file `at` or from the package index."""
    if at is not None:
        data = pathlib.Path(at).read_bytes()
    else:
        data = _downloaded(package, version, sha256)
    check(f"the wheel of {package} {version}", data, sha256)
    return data


def _downloaded(package, version, sha256):
    with tempfile.TemporaryDirectory() as folder:
        # An installation with digests takes them from a file of requirements alone.
        wanted = pathlib.Path(folder, "wanted.txt")
        wanted.write_text(f"{package}=={version} --hash=sha256:{sha256}\n")
        into = pathlib.Path(folder, "wheels")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        command += ["--no-deps", "--require-hashes", "--only-binary", ":all:", "-d", str(into), "-r", str(wanted)]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise Refused(f"pip download of {package} {version} failed:\n{done.stderr.strip()}")
        found = sorted(into.glob("*.whl"))
        if len(found) != 1:
            raise Refused(f"{package} {version}: expected one wheel, got {len(found)} files")
        return found[0].read_bytes()


def member(data, name, limit):
    """One file of a wheel. A file beyond `limit` bytes is refused before it is read."""
    import io

    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = archive.getinfo(name).file_size
            if size > limit:
                raise Refused(f"{name}: expected at most {limit} bytes, got {size}")
            return archive.read(name)
    except (zipfile.BadZipFile, KeyError) as error:
        raise Refused(f"{name}: {error}") from error


def write(folder, files):
    """Writes all files of a dict, each under its own name when it is whole."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        partial = folder / f".{name}.partial"
        partial.write_bytes(data)
        os.replace(partial, folder / name)
        print(f"{folder / name}: {len(data)} bytes, SHA-256 {hashlib.sha256(data).hexdigest()}")


def run(main):
    """Runs a script. A refusal is a line on standard error and the exit status 1."""
    try:
        main()
    except (Refused, OSError) as error:
        sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {error}")
