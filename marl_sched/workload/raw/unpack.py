"""The bytes of a file as published: plain, .gz, .bz2, .xz, or the one member of a .tar of it.

Files are recognised by their first bytes, not by their names.
"""

import bz2
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator
from io import BufferedIOBase
from pathlib import Path
from typing import Any

from marl_sched.errors import TraceError

CHUNK = 4 << 20
_PIECE = 16 << 20
_TAR_MAGIC = slice(257, 262)
_KNOWN: tuple[tuple[bytes, Callable[[], Any]], ...] = (
    (b"\x1f\x8b", lambda: zlib.decompressobj(31)),
    (b"BZh", bz2.BZ2Decompressor),
    (b"\xfd7zXZ", lzma.LZMADecompressor),
)
_UNKNOWN = {
    b"\x28\xb5\x2f\xfd": "zstd-compressed",
    b"PK\x03\x04": "a zip archive",
    b"\xff\xfe": "UTF-16 text",
    b"\xfe\xff": "UTF-16 text",
    b"PAR1": "a Parquet file",
    b"SQLite format 3": "an SQLite database",
}


class CutShort(Exception):
    """The rest of a compressed file is missing or damaged; what came before was handed out."""


def unpacked(path: Path, on_bytes: Callable[[int], None]) -> Iterator[bytes]:
    """Yield the file's content in chunks of some MiB.

    Args:
        path: The file.
        on_bytes: Told the number of bytes read from disk, for progress.

    Raises:
        TraceError: There is no such file, or it is of a kind that is not text.
        CutShort: After the last good chunk of a damaged compressed file.
    """
    if not path.is_file():
        problem = "not a file" if path.exists() else "no such file"
        raise TraceError(f"{path}: {problem}")
    chunks = _decompressed(path, on_bytes)
    first = next(chunks, b"")
    for magic, kind in _UNKNOWN.items():
        if first.startswith(magic):
            raise TraceError(
                f"{path}: is {kind}, expected UTF-8 text, plain or in gzip, bzip2, xz or a tar"
            )
    if first[_TAR_MAGIC] == b"ustar":
        yield from _tar_member(path, _Stream(first, chunks))
        return
    yield first
    yield from chunks


def _decompressed(path: Path, on_bytes: Callable[[int], None]) -> Iterator[bytes]:
    with path.open("rb") as file:
        raw = file.read(CHUNK)
        make = next((make for magic, make in _KNOWN if raw.startswith(magic)), None)
        if make is None:
            while raw:
                on_bytes(len(raw))
                yield raw
                raw = file.read(CHUNK)
            return
        decompressor = make()
        while raw:
            on_bytes(len(raw))
            while raw:
                if decompressor.eof:  # a file may be several compressed ones in a row
                    raw = raw.lstrip(b"\0")
                    if not raw:
                        break
                    decompressor = make()
                yield from _pieces(decompressor, raw)
                raw = decompressor.unused_data if decompressor.eof else b""
            raw = file.read(CHUNK)
        if not decompressor.eof:
            raise CutShort("the end of the compressed data is missing")


def _pieces(decompressor: Any, raw: bytes) -> Iterator[bytes]:
    """Yield what a chunk unpacks to, in pieces: four MiB may hold thousands."""
    while True:
        try:
            content = decompressor.decompress(raw, _PIECE)
        except (zlib.error, OSError, lzma.LZMAError, EOFError) as error:
            raise CutShort(f"damaged: {error}") from None
        if content:
            yield content
        if decompressor.eof:
            return
        # zlib hands back what it has not looked at, the others keep it.
        raw = getattr(decompressor, "unconsumed_tail", b"")
        if not raw and getattr(decompressor, "needs_input", True) and len(content) < _PIECE:
            return


class _Stream(BufferedIOBase):
    """Chunks as a file that can be read forward only, which is all that tarfile's `r|` asks."""

    def __init__(self, first: bytes, chunks: Iterator[bytes]) -> None:
        self._chunk, self._at, self._chunks = first, 0, chunks

    def read(self, size: int | None = -1, /) -> bytes:
        parts, wanted = [], -1 if size is None else size
        while wanted:
            if self._at == len(self._chunk):
                self._chunk, self._at = next(self._chunks, b""), 0
                if not self._chunk:
                    break
            end = len(self._chunk) if wanted < 0 else self._at + wanted
            part = self._chunk[self._at : end]
            self._at += len(part)
            parts.append(part)
            wanted -= len(part) if wanted > 0 else 0
        return b"".join(parts)


def _tar_member(path: Path, stream: _Stream) -> Iterator[bytes]:
    """Yield the content of the first regular file of an archive."""
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                content = archive.extractfile(member) if member.isfile() else None
                if content is None:
                    continue
                while chunk := content.read(CHUNK):
                    yield chunk
                return
    except (tarfile.TarError, EOFError) as error:
        raise CutShort(f"damaged archive: {error}") from None
    raise TraceError(f"{path}: the archive holds no file")
