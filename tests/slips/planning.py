"""Slips in core/planning: see tests/slips/__init__.py."""

from __future__ import annotations

from tests.slips.slip import Slip

_SEVERAL_CARDS = ("tests/planning/test_several_cards.py",)
_MILLION = ("tests/planning/test_a_million_tokens.py",)
_PLANNING = (
    "tests/planning/test_shapes_and_costs.py",
    "tests/planning/test_wishes.py",
    "tests/planning/test_planned_rows.py",
    "tests/planning/test_planner.py",
)
_HYBRID_PLANS = ("tests/planning/test_states.py",)
_SHARE = ("tests/planning/test_cpu_share.py",)
_DRAFTER = ("tests/planning/test_drafter.py",)

SLIPS = (
    Slip(
        "core/planning/passes.py",
        "if assisted and layout.host_layers:",
        "if False:",
        ("tests/planning/test_drafter.py",),
    ),
    Slip(
        "core/planning/passes.py",
        "own(kv_tokens=layout.context, kv_rows=layout.kv_rows)",
        "draft_s",
        ("tests/planning/test_drafter.py",),
    ),
    Slip(
        "core/planning/offers.py",
        "        entry = with_layer(entry, draft)",
        "        pass",
        ("tests/assembly/test_ahead.py",),
    ),
    Slip("core/planning/fitting.py", "(case.draft, case.target.layer_ahead)", "(case.draft,)", _DRAFTER),
    Slip(
        "core/planning/costs.py",
        "    if isinstance(draft, AheadShape | AssistantShape):\n        return ACCEPTANCE_AHEAD\n",
        "",
        _DRAFTER,
    ),
    Slip(
        "core/planning/costs.py",
        "compiled_states and speeds.in_turns:  # a",
        "compiled_states:  # a",
        _HYBRID_PLANS,
    ),
    Slip(
        "core/planning/costs.py", "if together else min(rows", "if not together else min(rows", _HYBRID_PLANS
    ),
    Slip("core/planning/fitting.py", "(PRODUCTS, CODED_KV, DELTA)", "(PRODUCTS, CODED_KV)", _HYBRID_PLANS),
    Slip("core/planning/passes.py", "two.tbt_s < bounds.tbt_s", "two.tbt_s > bounds.tbt_s", _HYBRID_PLANS),
    Slip(
        "core/planning/costs.py",
        "verify_s[m] + m * draft_s) / exp",
        "verify_s[0] + m * draft_s) / exp",
        _HYBRID_PLANS,
    ),
    Slip("core/planning/costs.py", "(1.0 - p ** (gamma + 1))", "(1.0 - p**gamma)", _PLANNING),
    Slip(
        "core/planning/costs.py",
        "attention /= TORCH_ATTENTION",
        "pass",
        ("tests/planning/test_rows_one_by_one.py",),
    ),
    Slip("core/planning/costs.py", "host_bytes * (segments - 1) / 2", "0.0", _PLANNING),
    Slip("core/planning/fitting.py", "if needed <= site.ram_free:", "if True:", _PLANNING),
    Slip(
        "core/planning/fitting.py",
        "reserve = 1.5 if hardware.spills",
        "reserve = 1.0 if hardware.spills",
        _PLANNING,
    ),
    Slip(
        "core/planning/planner.py",
        "context > target.longest_context",
        "context >= target.longest_context",
        _PLANNING,
    ),
    Slip("core/planning/fitting.py", "line.bytes * ranks", "line.bytes", _SEVERAL_CARDS),
    Slip("core/planning/fitting.py", 'return short.place != "RAM"', 'return short.place == "RAM"', _MILLION),
    Slip("core/planning/budget.py", '(TABLES, _tables_bytes(layout, layout.computes), "RAM"),', "", _MILLION),
    Slip("core/planning/costs.py", "2 * speeds.sum_s", "speeds.sum_s", _SEVERAL_CARDS),
    Slip("core/planning/costs.py", "max(compute, shape.layers * LAUNCHED_LAYER_S)", "compute", _PLANNING),
    Slip("core/planning/passes.py", "not (recorded and layout.graphs)", "not layout.graphs", _PLANNING),
    Slip("core/planning/passes.py", "if after_s * PROMISE <= before_s", "if after_s <= before_s", _SHARE),
    Slip(
        "core/planning/passes.py",
        "(1 - LOOKED_AT) * full(rows) + LOOKED_AT * alone(rows)",
        "full(rows)",
        _SHARE,
    ),
    Slip("core/planning/passes.py", "ways.append((best.full(1), 1))", "pass", _SHARE),
    Slip("core/planning/cpu_share.py", "max(by_bus, self._asked_s(rows, share))", "by_bus", _SHARE),
    Slip("core/planning/cpu_share.py", "min(cpu.kv * part, cpu.kv - bus)", "cpu.kv * part", _SHARE),
    Slip("core/planning/cpu_share.py", "max(0, threads - ranks) / threads", "1.0", _SHARE),
    Slip(
        "core/planning/planner.py",
        "expected_plain_tbt_ms=round(plain.full(1) * 1e3, 3),\n        expected_verify",
        "expected_verify",
        _SHARE,
    ),
    Slip("core/planning/planner.py", "replace(plan, cpu_share=record.cpu_share, ", "replace(plan, ", _SHARE),
    Slip("core/planning/tuned.py", 'if settings.cpu_share == "none" and', "if False and", _SHARE),
    Slip(
        "core/planning/host_attention.py",
        "kv=speeds.kv / ranks",
        "kv=speeds.kv",
        ("tests/planning/test_host_attention.py",),
    ),
)
