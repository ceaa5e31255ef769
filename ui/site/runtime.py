"""ONNX Runtime for browsers, from the npm registry, so that the site loads nothing from elsewhere."""

import base64
import hashlib
import subprocess
import tarfile
import tempfile
from pathlib import Path

from core.storage.errors import LabError

VERSION = "1.30.0"
INTEGRITY = "q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ=="  # SHA-512
FILES = {
    "package/dist/ort.wasm.bundle.min.mjs": "ort.mjs",
    "package/dist/ort-wasm-simd-threaded.wasm": "ort.wasm",
}
_SECONDS = 300


def runtime_files(cache: Path) -> dict[str, bytes]:
    """Return the runtime's script and WebAssembly by their names on the site.

    Args:
        cache: a folder that keeps the package for the next call.

    Raises:
        LabError: npm is not installed, it cannot fetch the package, or the package is not the expected one.
    """
    package = cache / f"onnxruntime-web-{VERSION}.tgz"
    if not package.is_file():
        _fetch(package)
    content = package.read_bytes()
    if base64.b64encode(hashlib.sha512(content).digest()).decode() != INTEGRITY:
        package.unlink()
        raise LabError(f"onnxruntime-web {VERSION} is not the package whose checksum is recorded; it was deleted")
    with tarfile.open(package) as archive:
        members = {target: archive.extractfile(source) for source, target in FILES.items()}
        return {name: file.read() for name, file in members.items() if file}


def _fetch(package: Path) -> None:
    package.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=package.parent) as folder:
        command = ["npm", "pack", f"onnxruntime-web@{VERSION}", "--ignore-scripts", "--pack-destination", folder]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=_SECONDS, cwd=folder)  # noqa: S603
        except FileNotFoundError as error:
            raise LabError(
                "the site needs npm, which comes with Node.js, to fetch ONNX Runtime for browsers"
            ) from error
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            reason = str(error.stderr or error).strip().splitlines()[-1]
            raise LabError(f"npm could not fetch onnxruntime-web {VERSION}: {reason[:200]}") from error
        next(Path(folder).glob("*.tgz")).replace(package)
