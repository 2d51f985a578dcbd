"""Slips in core/assembly: see tests/slips/__init__.py."""

from __future__ import annotations

from tests.slips.slip import Slip

_AHEAD = ("tests/assembly/test_ahead.py",)
_LESS_ROOM = ("tests/assembly/test_less_room.py",)
_ASSISTANT = ("tests/assembly/test_assistant.py", "tests/decoding/test_assistant.py")
_RANKED = ("tests/ranks/test_answers.py",)
_OFFLOADED = ("tests/test_offloaded_engine.py",)
_REPLAYS = ("tests/model/test_recorded_verification.py",)

SLIPS = (
    Slip("core/assembly/models.py", "if plan.drafter == MTP:", "if False:", _AHEAD),
    Slip("core/assembly/models.py", "if plan.drafter == ASSISTANT:", "if False:", _ASSISTANT),
    Slip("core/assembly/composition.py", "and _is_away(verified_by)", "and False", _ASSISTANT),
    Slip("core/assembly/models.py", "load_ahead(draft_dir or model_dir", "load_ahead(model_dir", _AHEAD),
    Slip(
        "core/assembly/composition.py",
        "return HeardModel(model, self._heard) if self._along else model",
        "return model",
        _AHEAD,
    ),
    Slip("core/assembly/lead_engine.py", "deque(events, maxlen=0)", "pass", _RANKED),
    Slip(
        "core/assembly/cache_factory.py",
        "self._ranks.all_or_none(lambda: cache",
        "(lambda: cache",
        _LESS_ROOM,
    ),
    Slip("core/assembly/lead_engine.py", "contexts.pop(number).close()", "contexts[number]", _RANKED),
    Slip(
        "core/assembly/composition.py",
        "self._verification or self._told(self._model)",
        "self._told(self._model)",
        _REPLAYS,
    ),
    Slip("core/assembly/composition.py", 'if mode == "cpu_attention":', "if False:", _OFFLOADED),
    Slip(
        "core/assembly/composition.py",
        "self._plan.cpu_share_plain if mode in PLAIN_MODES else self._plan.cpu_share",
        "self._plan.cpu_share",
        _OFFLOADED,
    ),
    Slip(
        "core/assembly/composition.py",
        "self._cpu_share(params.mode)",
        "self._cpu_share(params.mode) // 1",
        _OFFLOADED,
    ),
)
