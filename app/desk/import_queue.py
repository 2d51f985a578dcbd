"""How a file becomes a book: one after another, read in the background.

The person is asked where it is locked or full of pictures.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from app.desk import ocr_install
from app.desk.disk_usage import is_short
from app.desk.shelf import Shelf
from app.desk.store import Store
from app.desk.values import ImportedFile, Notice
from app.errors import in_words, is_away, is_full
from app.models.progress import StageEstimate
from app.store.known_files import KnownFiles
from core.documents.document import Document
from core.documents.pdf.ocr import how_to
from core.errors import PasswordNeeded, ScannedPages, UserError
from core.text.words import translated as _

log = logging.getLogger(__name__)
MOST_WAITING = 100
TITLE_CHARS = 120


@dataclass(frozen=True, slots=True)
class Readers:
    """What reads a file: its text, its cover (a JPEG, or empty), and whether OCR is there, or installs it."""

    read: Callable[..., Document]
    cover: Callable[..., bytes]
    can_ocr: Callable[[], bool]
    install_ocr: Callable[..., None] = ocr_install.install


class ImportQueue:
    """The file that is being read, if there is one, and those behind it. Uploads are deleted once they are
    read; `samples` are the app's own and stay.
    """

    def __init__(
        self,
        store: Store,
        shelf: Shelf,
        readers: Readers,
        *,
        uploads: Path,
        known: KnownFiles,
        samples: tuple[Path, ...] = (),
    ) -> None:
        self.samples, self._known = samples, known
        self._store, self._shelf, self._readers, self._uploads = store, shelf, readers, uploads
        self._lock = threading.Lock()
        self._cancelled = threading.Event()
        self._queue: deque[ImportedFile] = deque()  # dropped while another file was being read

    def upload(self, path: str, name: str, title: str = "", several: str = "") -> None:
        """Reads an uploaded file; `title`: its name on the shelf, where the person gave one; `several`: not
        empty where it came together with others.
        """
        try:
            file = uploaded(self._uploads, path)
        except UserError as error:
            self._store.fail(name, str(error))
        else:
            title = " ".join(title.split())[:TITLE_CHARS]
            self._open(ImportedFile(file, name, _("Opening"), title=title, several=bool(several)))

    def refuse(self, name: str, limit_mb: int) -> None:
        """Says why the page did not take a file: larger than so many MB, or lost on the way."""
        reason = _("It could not be copied into the app.")
        if not limit_mb and is_short(self._uploads):
            reason = _not_added(name, OSError(errno.ENOSPC, name))
        if not limit_mb and is_away():
            reason = _not_added(name, OSError(errno.ENOENT, name))
        if limit_mb:
            reason = _("It is larger than the limit of {limit} MB.").format(limit=limit_mb)
        self._store.fail(name, reason)

    def sample(self, name: str) -> None:
        """Opens one of the app's own books."""
        for sample in self.samples:
            if sample.name == name:
                self._open(ImportedFile(sample, name, _("Opening"), keep=True))

    def files(self, paths: Sequence[str]) -> None:
        """Reads files where they lie, one after another, also while an answer is written: then they come on
        the shelf.
        """
        there = [Path(path) for path in paths if Path(path).is_file()]
        for path in there:
            one = ImportedFile(path, path.name, _("Opening"), keep=True, several=len(there) > 1)
            self._take_in(one)
        for path in paths:
            if Path(path) not in there:
                self._store.fail(path, _("There is no file {path}.").format(path=path))

    def read_apart(
        self, path: Path, *, progress: Callable[..., None], should_stop: Callable[[], bool]
    ) -> tuple[Document, bytes]:
        """A file for somebody else than the person, and its cover; the file stays. Raises UserError."""
        readers = self._readers
        document = readers.read(path, password=None, ocr=False, progress=progress, should_stop=should_stop)
        return self._named(document, ImportedFile(path, path.name)), readers.cover(
            path, password=None, should_stop=should_stop
        )

    def give_password(self, password: str) -> None:
        """Tries again to open the locked file."""
        opening = self._store.state.opening
        if opening and opening.locked:
            self._open_again(replace(opening, locked=False, password=password))

    def read_pictures(self) -> None:
        """Reads the file that waits again, its scanned pages by OCR."""
        opening = self._store.state.opening
        if opening and opening.offer and not opening.installs:
            self._open_again(replace(opening, offer="", ocr=True))

    def install_ocr(self) -> None:
        """Installs OCR, and has it read the file that waits for it."""
        opening = self._store.state.opening
        if opening and opening.installs and not self._store.refuse_while_busy():
            self._cancelled.clear()
            self._store.update(opening=replace(opening, offer="", stage=_("Installing OCR")))
            threading.Thread(target=self._install, args=(opening,), name="ocr", daemon=True).start()

    def _install(self, opening: ImportedFile) -> None:
        """The file waits again where it does not come to that."""

        paced = StageEstimate()

        def progress(stage: str, fraction: float | None = None) -> None:
            left_s = paced.left_s(stage, fraction)
            shown = replace(opening, offer="", stage=stage, fraction=fraction, left_s=left_s)
            self._store.update(opening=shown)

        try:
            self._readers.install_ocr(progress, self._cancelled.is_set)
        except (UserError, OSError) as error:
            self._store.say(in_words(error))
            self._cancelled.set()
        if self._cancelled.is_set():
            self._store.update(opening=opening)
        else:
            self._store.update(opening=replace(opening, installs=False))
            self.read_pictures()

    def stop(self) -> None:
        """Ends the reading of a file as soon as possible, and of those behind it."""
        with self._lock:
            queue, self._queue = self._queue, deque()
        for opening in queue:
            _drop(opening)
        self._cancelled.set()

    def cancel(self) -> None:
        """Gives up on the file, also on one that waits for the person; those behind it are read."""
        self._cancelled.set()
        with self._lock:
            opening = self._store.state.opening
            given_up = opening if opening and opening.waiting else None
            if given_up:
                _drop(given_up)
                self._store.update(opening=None)
        if given_up:
            self._go_on()

    # --- inside

    def _open(self, opening: ImportedFile) -> None:
        if self._store.refuse_while_moving():
            _drop(opening)
        else:
            self._take_in(opening)

    def _take_in(self, opening: ImportedFile) -> None:
        with self._lock:
            now = self._store.state.opening
            before = now if now and now.path != opening.path else None
            if before is not None and not before.offer:
                self._wait_in_line(opening)
                return
            shown = replace(opening, behind=len(self._queue))
            self._store.update(opening=shown, notice=None)
        if before:
            _drop(before)
        self._begin(opening)

    def _begin(self, opening: ImportedFile) -> None:
        self._cancelled.clear()
        threading.Thread(target=self._read_file, args=(opening,), name="reading", daemon=True).start()

    def _wait_in_line(self, opening: ImportedFile) -> None:
        if len(self._queue) >= MOST_WAITING:
            _drop(opening)
            words = _("{count} files wait already. Drop “{name}” again when they are read.")
            self._store.fail(opening.name, words.format(count=len(self._queue), name=opening.name))
            return
        self._queue.append(opening)
        self._store.update(opening=replace(self._store.state.opening, behind=len(self._queue)))

    def _go_on(self) -> None:
        """Reads the next file that waits, if the one before does not wait for the person."""
        with self._lock:
            if self._store.state.opening is not None or not self._queue:
                return
            opening = self._queue.popleft()
            self._store.update(opening=replace(opening, behind=len(self._queue)))
        self._begin(opening)

    def _open_again(self, opening: ImportedFile) -> None:
        if self._store.refuse_while_moving():
            return
        if opening.path.is_file():
            self._open(replace(opening, stage=_("Opening"), fraction=None))
        else:  # uploads do not wait for ever
            words = _("“{name}” was deleted here in the meantime. Please drop it again.")
            self._store.update(opening=None)
            self._store.fail(opening.name, words.format(name=opening.name))

    def _read_file(self, opening: ImportedFile) -> None:
        done: ImportedFile | None = None
        try:
            done = self._shelved(opening)
        except PasswordNeeded as error:
            done = replace(opening, locked=True, refusal=str(error) if opening.password else "")
            self._hint("")
        except ScannedPages as error:
            done = self._offered(opening, str(error))
            self._hint("" if done else str(error))
        except UserError as error:
            self._store.fail(opening.name, str(error), stored_as=opening.path.name)
        # the boundary to the person: a reader's bug must not take the page down
        except Exception as error:
            log.exception("reading %s failed", opening.name)
            words = _(
                "“{name}” could not be read. The log has the details; another format of the same book "
                "may work."
            ).format(name=opening.name)
            if is_full(error) or is_away():
                words = _not_added(opening.name, error)
            self._store.fail(opening.name, words)
        finally:
            if done is None:
                _drop(opening)
            self._store.update(opening=done)
            self._go_on()

    def _hint(self, words: str) -> None:
        """Says why the file waits for the person, where that is not asked in a box of its own."""
        self._store.update(notice=Notice(words) if words else None)

    def _shelved(self, opening: ImportedFile) -> ImportedFile | None:
        """Reads the file and hands the book over. Returns the file when it is to wait for a word about its
        pictures.
        """

        paced = StageEstimate()

        def progress(stage: str, fraction: float | None = None) -> None:
            how_far = {"stage": stage, "fraction": fraction, "left_s": paced.left_s(stage, fraction)}
            with self._lock:
                self._store.update(opening=replace(opening, **how_far, behind=len(self._queue)))

        with self._cover_beside(opening) as cover:
            document = self._readers.read(
                opening.path,
                password=opening.password,
                ocr=opening.ocr,
                progress=progress,
                should_stop=self._cancelled.is_set,
            )
            if self._cancelled.is_set():
                return None
            book = self._named(document, opening)
            several = opening.several
            self._shelf.put(book, cover=cover.result(), again=opening.ocr, several=several)
            self._known.note_import(opening.name, opening.path, book.sha256)
        if not document.pictures:
            return None
        pages = len(document.page_starts)
        words = _("{pictures} of {pages} pages of “{name}” are pictures and were left out.")
        return self._offered(
            opening, words.format(pictures=document.pictures, pages=pages, name=opening.name)
        )

    @contextlib.contextmanager
    def _cover_beside(self, opening: ImportedFile) -> Iterator[Future[bytes]]:
        """The book's cover, looked for while the block reads its text; given up when the block ends first."""
        ended, look = threading.Event(), self._readers.cover
        with ThreadPoolExecutor(1, thread_name_prefix="cover") as beside:
            try:
                yield beside.submit(look, opening.path, password=opening.password, should_stop=ended.is_set)
            finally:
                ended.set()

    def _offered(self, opening: ImportedFile, words: str) -> ImportedFile | None:
        """The file, waiting for a word about its pictures; None where OCR has read them."""
        if opening.ocr:
            return None
        there = self._readers.can_ocr()
        return replace(opening, offer=words if there else words.removesuffix(how_to()), installs=not there)

    def _named(self, document: Document, opening: ImportedFile) -> Document:
        """With the title that the person gave it, else its own, else the one that the shelf has, else the
        file's name. Chapters that were named after the book still are.
        """
        own = document.title.strip()
        own = "" if own == opening.path.stem else own
        there = self._shelf.title_of(document.sha256)
        title = opening.title or own or there or Path(opening.name).stem
        sections = (
            replace(one, title=title) if one.title == document.title else one for one in document.sections
        )
        return replace(document, title=title, sections=tuple(sections))


def _not_added(name: str, error: Exception) -> str:
    """Why a file that could be read is not on the shelf."""
    return _("“{name}” was not added. {reason}").format(name=name, reason=in_words(error))


def uploaded(folder: Path, path: str) -> Path:
    """The upload at `path` in the `folder` where they arrive. Raises UserError for any other path: they come
    from the browser.
    """
    real = Path(path).resolve()
    if not real.is_relative_to(folder.resolve()) or not real.is_file():
        raise UserError(_("That file did not arrive. Please drop it again."))
    return real


def _drop(opening: ImportedFile) -> None:
    if not opening.keep:
        opening.path.unlink(missing_ok=True)
