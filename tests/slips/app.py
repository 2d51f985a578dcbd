"""Slips in the app: see tests/slips/__init__.py."""

from __future__ import annotations

from tests.slips.slip import Slip

_SHOWN = ("tests/app/test_shown_words.py",)

SLIPS = (
    Slip(
        "app/server/guard.py",
        "if origin is not None and origin != f\"http://{headers['host']}\":",
        "if False:",
        ("tests/app/test_guard.py",),
    ),
    Slip(
        "app/server/guard.py",
        "if foreign and not _is_visit(scope, headers):",
        "if False:",
        ("tests/app/test_guard.py",),
    ),
    Slip(
        "app/desk/questions.py",
        "self._engine.room(ask, ROOM_WAIT_S)",
        "self._engine.room(ask)",
        ("tests/app/test_asking.py",),
    ),
    Slip(
        "app/store/turns.py",
        "not within(answered_limit(question, answer), spoiler_limit) and not within(last, spoiler_limit)",
        "not within(last, spoiler_limit)",
        ("tests/app/test_limit.py",),
    ),
    Slip("app/engine/client.py", "self._answering != self._begun", "False", ("tests/app/test_runtime.py",)),
    Slip(
        "app/web/citations.py",
        "self._last, self._end = spans[-1][0], spans[-2][1]",
        "self._last, self._end = spans[-1][0], spans[-1][1]",
        ("tests/app/test_citations.py", "tests/app/test_evidence_shown.py"),
    ),
    Slip(
        "app/render/markdown.py",
        "rows[0].number + len(rows)",
        "rows[0].number + 1",
        ("tests/app/test_markup.py",),
    ),
    Slip(
        "app/desk/several_books.py",
        'one.kind == "nothing" for one in marks',
        "False for one in marks",
        ("tests/app/test_several_books.py",),
    ),
    Slip(
        "app/store/turn_rows.py",
        "ORDER BY pinned DESC, updated DESC",
        "ORDER BY updated DESC",
        ("tests/app/test_history.py", "tests/app/test_conversations.py"),
    ),
    Slip(
        "app/store/library.py",
        "key=lambda entry: -entry.opened)",
        "key=lambda entry: entry.opened)",
        ("tests/app/test_library.py", "tests/app/test_shelf.py"),
    ),
    Slip(
        "app/models/local_files.py",
        'and "mmproj" not in name',
        "",
        ("tests/app/test_models.py", "tests/app/test_moving.py"),
    ),
    Slip(
        "app/store/history.py", "(to_json_text(late.extra), *key)", "(json.dumps(late.extra), *key)", _SHOWN
    ),
    Slip(
        "app/store/history.py", "state, to_json_text(extra or {})", "state, json.dumps(extra or {})", _SHOWN
    ),
    Slip("app/store/turns.py", "return text  # perhaps a message", "return line", _SHOWN),
    Slip("app/render/templating.py", "finalize=_shown", "finalize=None", _SHOWN),
    Slip("app/render/markdown.py", "piece if whole else None))", "None))", _SHOWN),
    Slip("app/desk/answer_snapshot.py", " and not _said(joined[-1], piece)", "", _SHOWN),
    Slip("app/web/values.py", 'turn.state != "writing"', "turn.state", ("tests/app/test_page.py",)),
    Slip(
        "app/store/folder_scan.py",
        "changed = max(about.st_mtime, about.st_ctime)",
        "changed = about.st_mtime",
        ("tests/app/test_folders.py",),
    ),
    Slip("app/desk/book_folders.py", "self._known.note(_key(one))", "pass", ("tests/app/test_folders.py",)),
    Slip("app/api/request.py", "most = context_tokens // 4", "most = 0", ("tests/app/test_koreader.py",)),
    Slip("app/render/vault.py", "or _DEVICES.fullmatch(name)", "", ("tests/app/test_obsidian.py",)),
    Slip(
        "app/desk/several_books.py",
        "last_limit(self._history, self._library, one.book_id)",
        "None",
        ("tests/app/test_several_books.py",),
    ),
    Slip(
        "app/desk/earlier_volumes.py",
        "series.volumes[: series.position(book_id)] if series else ()",
        "series.volumes if series else ()",
        ("tests/app/test_series.py",),
    ),
    Slip(
        "app/desk/earlier_volumes.py",
        "last_limit(self._history, self._library, entry.id)",
        "None",
        ("tests/app/test_series.py",),
    ),
    Slip(
        "app/desk/reader.py",
        "if talks else library.notebook(book_id).spoiler_limit",
        "if talks else None",
        ("tests/app/test_limit.py",),
    ),
    Slip("app/store/series.py", "return own if rising else", "return", ("tests/app/test_series.py",)),
    Slip(
        "app/desk/several_books.py",
        "(*_unfinished(now), *asked)",
        "asked",
        ("tests/app/test_several_books.py",),
    ),
    Slip(
        "app/render/vault.py",
        '.encode()[:_NAME_BYTES].decode(errors="ignore")',
        "",
        ("tests/app/test_obsidian.py",),
    ),
)
