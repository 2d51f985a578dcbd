"""The regions about models: the list, the offer, a file of one's own, the download. Values in, HTML out."""

from __future__ import annotations

from app.models.catalogue import ListedModel
from app.models.local_files import FileInspection, FolderChoice
from app.models.progress import Transfer
from app.render.templating import render
from core.model.store.catalogue import not_yet
from core.text.words import marked as N_

SHOWN = 4  # models that are not folded away

# as the catalogue says them
LANGUAGES = (
    N_("English"),
    N_("English, German, French, Italian, Portuguese, Hindi, Spanish, Thai"),
    N_("English, French, German, Spanish, Italian, Portuguese, Chinese, Japanese, Russian, Korean and more"),
    N_("English, French, German, Spanish, Italian, Portuguese"),
    N_(
        "English, French, German, Spanish, Italian, Portuguese, Dutch, Chinese, Japanese, Korean, Arabic and "
        "more"
    ),
    N_("English, Arabic, Chinese, French, German, Japanese, Korean, Spanish"),
    N_("29 languages, English and Chinese first"),
    N_("119 languages, English and Chinese first"),
    N_("201 languages, English and Chinese first"),
    N_("more than 140 languages"),
)


def models_html(
    models: tuple[ListedModel, ...], current: str, offline: bool = False, fetching: bool = False
) -> str:
    """What can be chosen here; empty where there is nothing to choose. `offline`: nothing can be fetched.
    `fetching`: one is, and another must wait.
    """
    if not models:
        return ""
    fitting = [model for model in models if model.fits]
    first = [model for at, model in enumerate(fitting) if at < SHOWN or model.here or model.name == current]
    return render(
        "models.html",
        first=first,
        more=[model for model in fitting if model not in first],
        unfit=[model for model in models if not model.fits],
        absent=not_yet(),
        current=current,
        offline=offline,
        fetching=fetching,
    )


def model_offer_html(offer: ListedModel | None) -> str:
    """Which model this computer should have; empty where there is nothing to offer."""
    return render("model_offer.html", model=offer) if offer else ""


def model_files_html(choosing: FolderChoice | None) -> str:
    """A folder to choose a model file from; empty while nobody does."""
    return render("model_files.html", choosing=choosing) if choosing else ""


def fetching_html(fetching: Transfer | None) -> str:
    """The download: how far it is, and what can be done about it."""
    return render("fetching.html", fetching=fetching) if fetching else ""


def looking_html(looking: FileInspection | None) -> str:
    """The model file that is looked at, for how long at most, and a way out."""
    return render("looking.html", looking=looking) if looking else ""
