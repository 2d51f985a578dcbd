"""What stands above the conversation, as HTML: messages, files that were not opened, questions of the app."""

from __future__ import annotations

from app.desk import ocr_install
from app.desk.values import Arrival, Deletion, DiskShortage, FolderMove, ImportedFile, Notice
from app.errors import full_disk
from app.render.templating import render
from core.text.words import localized
from core.text.words import translated as _


def messages_html(
    message: Notice | None,
    failures: tuple[str, ...],
    arrivals: tuple[Arrival, ...],
    deleted: tuple[Deletion, ...],
    opening: ImportedFile | None,
    book_id: str,
    shortage: DiskShortage | None,
) -> str:
    """What is said above the conversation: none of it takes the place of another. What a full disk refused
    stands in the message of that disk, as long as there is one.
    """
    if shortage is not None:
        message = None if _without_room(message) else message
        failures = tuple(one for one in failures if not _but_room(one))
    of_files = failures_html(failures) + arrivals_html(arrivals, book_id)
    return of_files + deleted_html(deleted) + notice_html(message) + offer_html(opening)


def notice_html(notice: Notice | None) -> str:
    """What was said last; empty where nothing is to be said."""
    if notice is None:
        return ""
    return render("notice.html", kind=notice.kind, text=notice.text, remedies=notice.remedies)


def deleted_html(deleted: tuple[Deletion, ...]) -> str:
    """What was deleted last, and the button that brings all of it back; empty where nothing can be."""
    return render("deleted.html", deleted=deleted) if deleted else ""


def failures_html(failures: tuple[str, ...]) -> str:
    """The files that were not opened, and why; empty when there are none."""
    return render("failures.html", failures=failures) if failures else ""


def arrivals_html(arrivals: tuple[Arrival, ...], book_id: str) -> str:
    """What came of files that were read, and the way to each book that does not lie open; empty without."""
    return render("arrivals.html", arrivals=arrivals, book_id=book_id) if arrivals else ""


def offer_html(opening: ImportedFile | None) -> str:
    """The question whether OCR is to read a file's scanned pages; empty when no file waits for that."""
    if opening is None or not opening.offer:
        return ""
    return render(
        "offer.html", offer=opening.offer, installs=opening.installs, download=ocr_install.DOWNLOAD_BYTES
    )


def moving_html(moving: FolderMove | None) -> str:
    """The data folder on its way to another place; empty while it is not."""
    return render("moving.html", moving=moving) if moving else ""


def shortage_html(
    shortage: DiskShortage | None, model_name: str, message: Notice | None, failures: tuple[str, ...]
) -> str:
    """A disk without room, what it refused, and what could be deleted, except the model in use; empty where
    there is room.
    """
    if shortage is None:
        return ""
    refused = dict.fromkeys(filter(None, (*map(_but_room, failures), _without_room(message))))
    models = [one for one in shortage.models if one[0] != model_name]
    return render("shortage.html", shortage=shortage, models=models, refused=list(refused))


def _without_room(message: Notice | None) -> str:
    """What a full disk refused, of a message that says no more; else empty."""
    return _but_room(message.text) if message and not message.remedies else ""


def _but_room(said: str) -> str:
    """What a full disk refused, without that it was full; empty of what failed for another reason."""
    told, full = localized(said), full_disk()
    if full not in told:
        return ""
    return told.replace(full, "").strip(" :") or _("Not everything could be stored.")


def leaving_html(*, ask: bool, now: bool) -> str:
    """What closing the last tab means, while that is to be asked. `now`: it was closed already."""
    return render("leaving.html", now=now) if ask else ""


def locked_html(opening: ImportedFile | None) -> str:
    """The words above the password box; empty when no file is locked."""
    return render("locked.html", opening=opening) if opening and opening.locked else ""
