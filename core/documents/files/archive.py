"""A zip archive that cannot hurt: sizes, ratio and names are checked before anything is unpacked.

Nothing is written.
"""

from __future__ import annotations

import io
import posixpath
import zipfile
import zlib
from dataclasses import dataclass
from urllib.parse import unquote

from core.errors import DocumentError
from core.text.words import translated as _

_READ_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    OSError,
    ValueError,
)


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """Bounds on one archive. The whole is never unpacked, only the entries asked for; both sums are
    checked.
    """

    entries: int = 20_000
    entry_bytes: int = 64 << 20  # a single text item; the longest novels stay below 10 MB
    total_bytes: int = 1 << 30  # by the archive's own directory
    read_bytes: int = 256 << 20  # really unpacked
    # unpacked : packed, for entries over 4 MB; text reaches about 20
    ratio: int = 200


class SafeArchive:
    """Read-only view of a zip in memory. Entry names are normalised; absolute ones and those that climb out
    do not exist.
    """

    def __init__(self, data: bytes, name: str, limits: ArchiveLimits | None = None) -> None:
        self._limits = limits or ArchiveLimits()
        self._name = name
        self._read_bytes = 0
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
            infos = self._zip.infolist()
        except _READ_ERRORS as error:
            raise DocumentError(
                _("{name} is a damaged or cut-off archive and cannot be opened. Download it again.").format(
                    name=name
                )
            ) from error
        self._check(infos)
        self.refused = tuple(info.filename for info in infos if _safe(info.filename) is None)
        self._infos = {
            _safe(info.filename): info for info in infos if _safe(info.filename) and not info.is_dir()
        }
        self._folded = {key.lower(): key for key in self._infos}

    @property
    def names(self) -> tuple[str, ...]:
        """Normalised names of all entries that may be read."""
        return tuple(self._infos)

    def read(self, name: str) -> bytes:
        """The unpacked entry. KeyError when it is missing, unsafe or unreadable; DocumentError when it is too
        large.
        """
        info = self._find(name)
        if info.flag_bits & 0x1:
            raise KeyError(name)
        try:
            with self._zip.open(info) as stream:
                data = stream.read(self._limits.entry_bytes + 1)  # counted, not believed: directories lie
        except _READ_ERRORS as error:
            raise KeyError(name) from error
        self._read_bytes += len(data)
        if len(data) > self._limits.entry_bytes or self._read_bytes > self._limits.read_bytes:
            raise self._too_large(info.filename)
        return data

    def _find(self, name: str) -> zipfile.ZipInfo:
        for candidate in (name, unquote(name)):
            safe = _safe(candidate)
            if safe is None:
                continue
            key = safe if safe in self._infos else self._folded.get(safe.lower())
            if key is not None:
                return self._infos[key]
        raise KeyError(name)

    def _check(self, infos: list[zipfile.ZipInfo]) -> None:
        limits = self._limits
        if len(infos) > limits.entries:
            raise DocumentError(
                _(
                    "{name} has {count:,} entries, over the limit of {limit:,} for a book. "
                    "It looks damaged or made to harm."
                ).format(name=self._name, count=len(infos), limit=limits.entries)
            )
        if sum(info.file_size for info in infos) > limits.total_bytes:
            raise self._too_large(_("its content"))
        for info in infos:
            if info.file_size > 4 << 20 and info.file_size > limits.ratio * max(1, info.compress_size):
                raise self._too_large(info.filename)

    def _too_large(self, what: str) -> DocumentError:
        return DocumentError(
            _(
                "{name} would unpack to far more than a book holds ({what} is too large). "
                "It looks like a zip bomb and was not opened."
            ).format(name=self._name, what=what[:80])
        )


def _safe(name: str) -> str | None:
    """The normalised entry name, or None for absolute names, drive letters and names that climb out of the
    archive.
    """
    plain = name.replace("\\", "/")
    if plain.startswith("/") or ":" in plain.split("/")[0] or "\x00" in plain:
        return None
    normal = posixpath.normpath(plain)
    return None if normal.startswith("..") or normal in (".", "") else normal
