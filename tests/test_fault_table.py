"""Each fault that a person's computer may bring, and the test that injects it. A fault without one, or a test
that was renamed away, fails here.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
FAULTS = {
    "the engine is killed while it reads": [
        "app/test_bad_days.py::test_an_engine_killed_in_prefill_costs_one_answer",
        "e2e/test_faults.py::test_an_engine_that_is_killed_costs_one_answer",
    ],
    "the engine is killed in an answer": [
        "app/test_runtime.py::test_killed_engine_is_started_again_and_the_conversation_goes_on",
        "e2e/test_real.py::test_a_killed_engine_is_started_again_and_said_so",
        "e2e/test_faults.py::test_an_engine_that_is_killed_costs_one_answer",
    ],
    "the app is killed": [
        "e2e/test_lost.py::test_a_page_whose_app_died_says_so_keeps_the_text_and_joins_the_next",
        "app/test_runtime.py::test_killed_app_leaves_no_engine_behind",
        "app/test_instance.py::test_a_killed_app_leaves_no_lock_and_no_address",
        "app/test_history.py::test_turns_are_on_disk_before_the_answer_ends",
        "app/test_waiting_question.py::test_what_waited_stands_unasked_in_its_conversation_at_the_next_start",
        "cache/test_snapshot.py::test_a_killed_save_leaves_whole_blocks_only",
        "model/test_fetch.py::test_a_killed_download_is_no_model_and_goes_on",
    ],
    "the disk is full: snapshot": [
        "cache/test_snapshot_room.py::test_a_full_disk_is_left_alone",
        "cache/test_snapshot_room.py::test_a_write_that_fails_leaves_nothing",
        "app/test_bad_days.py::test_a_disk_that_fills_up_while_a_reading_is_stored_costs_no_answer",
    ],
    "the disk is full: history": [
        "app/test_faults.py::test_a_question_that_cannot_be_stored_is_asked_and_leaves_nothing_half_done",
        "app/test_faults.py::test_an_answer_that_cannot_be_stored_is_shown_and_stored_later",
        "app/test_faults.py::test_a_start_on_a_full_disk_after_a_crash_says_so",
        "app/test_full_disk.py::test_what_a_full_disk_refused_at_the_end_is_not_told_as_written",
        "app/test_full_disk.py::test_an_answer_that_is_not_stored_says_so_where_it_stands_until_it_is",
        "app/test_full_disk.py::test_snapshots_give_way_before_an_answer_is_lost",
        "app/test_full_disk.py::test_a_start_without_room_says_what_can_go_and_takes_it_away",
        "e2e/test_faults.py::test_a_full_disk_keeps_no_question_from_being_asked",
    ],
    "the disk is full: a book": [
        "app/test_full_disk.py::test_snapshots_give_way_before_a_book_is_lost",
        "app/test_full_disk.py::test_a_file_that_did_not_fit_is_told_why",
        "app/test_full_disk.py::test_a_book_whose_reading_found_no_room_is_told_why",
    ],
    "the disk is full: download": [
        "model/test_download.py::test_a_full_disk_is_said_before_a_file_is_fetched",
        "model/test_fetch.py::test_a_disk_that_fills_up_on_the_way_is_said_and_what_came_is_gone_on_from",
        "e2e/test_models.py::test_from_the_demonstration_to_a_model_of_ones_own",
    ],
    "the disk is full: moving the data": [
        "app/test_moving.py::test_a_disk_that_is_full_on_the_way_leaves_the_old_folder"
    ],
    "the data folder is read-only": [
        "app/test_faults.py::test_a_data_folder_that_cannot_be_written_to_is_one_sentence",
        "e2e/test_faults.py::test_a_data_folder_that_becomes_read_only_is_said",
    ],
    "the data folder is gone": [
        "app/test_folder_gone.py::test_a_book_is_not_put_on_a_shelf_that_is_gone",
        "app/test_folder_gone.py::test_an_answer_that_cannot_be_kept_says_so_and_is_kept_with_the_folder_back",
        "app/test_folder_gone.py::test_nothing_is_begun_in_its_place",
        "app/test_bad_days.py::test_a_data_folder_that_vanishes_costs_no_answer_and_is_said",
        "app/test_moving.py::test_a_drive_that_is_not_there_is_said_and_no_empty_folder_takes_its_place",
        "e2e/test_faults.py::test_a_drive_that_is_gone_in_an_answer_costs_nothing",
        "app/test_database.py::test_a_drive_that_was_away_is_found_again",
    ],
    "the data folder is slow": ["app/test_bad_days.py::test_a_slow_drive_costs_nothing_but_time"],
    "the database is corrupt": [
        "app/test_database.py::test_a_damaged_file_is_kept_aside_and_said",
        "e2e/test_faults.py::test_conversations_that_cannot_be_read_are_kept_aside",
    ],
    "the database is a newer version's": [
        "app/test_database.py::test_a_file_of_a_newer_version_is_not_touched",
        "e2e/test_faults.py::test_conversations_that_cannot_be_read_are_kept_aside",
    ],
    "bits of a snapshot flip": ["cache/test_snapshot.py::test_no_flipped_bit_gets_into_a_cache"],
    "the model's folder is deleted": [
        "app/test_lost_files.py::test_a_mapped_file_that_shrinks_costs_one_answer_and_is_named",
        "app/test_models.py::test_a_file_that_vanished_is_named",
        "e2e/test_faults.py::test_a_model_whose_folder_is_gone_is_named_with_what_to_do",
    ],
    "the settings are broken": [
        "app/test_preferences.py::test_a_damaged_file_is_kept_aside_and_said",
        "e2e/test_faults.py::test_settings_that_cannot_be_read_are_kept_aside",
    ],
    "the clock jumps": [
        "app/test_library.py::test_a_clock_that_was_set_back_does_not_shuffle_the_shelf",
        "app/test_history.py::test_a_clock_that_was_set_back_does_not_shuffle_the_conversations",
        "app/test_bad_days.py::test_a_clock_that_jumps_changes_no_wait",
    ],
    "the computer sleeps and wakes": [
        "app/test_bad_days.py::test_an_answer_goes_on_after_a_sleep",
        "e2e/test_lost.py::test_an_answer_goes_on_where_it_was_after_a_sleep",
    ],
    "two tabs": ["e2e/test_stream.py::test_two_tabs_show_the_same_answer_over_one_stream"],
    "a reload at any moment": [
        "e2e/test_stream.py::test_a_page_reloaded_in_the_middle_of_an_answer_goes_on_with_it",
        "e2e/test_lost.py::test_a_reloaded_page_keeps_what_was_typed_and_forgets_what_was_sent",
        "e2e/test_faults.py::test_a_reload_loses_nothing_at_any_moment",
    ],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_injected_by_a_test_that_exists(fault):
    for place in FAULTS[fault]:
        file, _, name = place.partition("::")
        tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
        assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, place
