# SPDX-FileCopyrightText: graceful.azure contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One contract for Python and PowerShell: the cases of the integration tests, and what those ask of each outcome.

A new case goes into tests/integration. What is not here is about Python's library, or about a task, not a module.
"""

from __future__ import annotations

from ansible_collections.graceful.azure.tests.integration import test_approve, test_failures, test_reads, test_wait

TESTS = {
    test_approve: (
        "test_a_second_run_finds_it_done",
        "test_an_event_is_approved_or_it_is_said_why_not",
        "test_an_unconfirmed_approval_is_looked_after_before_it_is_posted_again",
        "test_check_mode_says_what_it_would_do_and_does_not",
        "test_several_events_stand_in_one_post",
        "test_the_preview_version_is_told_the_incarnation",
    ),
    test_failures: (
        "test_a_bad_service_fails_the_task_with_advice",
        "test_a_wrong_option_is_named_before_anything_is_sent",
    ),
    test_reads: (
        "test_a_given_name_is_not_asked_for",
        "test_a_passing_failure_is_asked_again",
        "test_a_proxy_in_the_environment_is_ignored",
        "test_a_recommendation_for_spot_vms_is_an_event_like_others",
        "test_a_vm_without_a_name_does_not_know_what_affects_it",
        "test_an_odd_document_is_read",
        "test_an_odd_event_is_kept_and_warned_about",
        "test_an_older_version_does_not_have_it",
        "test_auto_is_the_newest_version_that_the_service_takes",
        "test_every_request_says_what_it_is_and_nothing_else_is_asked",
        "test_every_version_gives_the_same_fields_and_null_for_what_it_lacks",
        "test_only_events_that_every_filter_lets_through",
        "test_the_time_left_is_by_the_clock_of_the_service",
    ),
    test_wait: (
        "test_a_change_is_noticed_in_spite_of_the_etag",
        "test_a_failing_service_is_never_taken_for_the_end",
        "test_a_wait_ends_with_what_happened",
        "test_a_wrong_option_is_named_before_anything_is_asked",
        "test_polling_keeps_its_connection_and_asks_for_changes_only",
    ),
}
for _module, _names in TESTS.items():
    globals().update({_name: getattr(_module, _name) for _name in _names})
