//! One suite that every store passes.

mod admission;
mod leases;
mod release;
mod tasks;
mod upkeep;

use crate::common::*;

macro_rules! conformance {
    ($($part:ident: $($name:ident),+;)+) => {
        mod memory {
            $($(#[test] fn $name() { super::$part::$name(&mut super::World::memory()); })+)+
        }
        mod sqlite {
            $($(#[test] fn $name() { super::$part::$name(&mut super::World::sqlite()); })+)+
        }
        #[cfg(feature = "postgres")]
        mod postgres {
            $($(#[test] fn $name() {
                if let Some(mut world) = super::World::postgres(super::restarts(stringify!($name))) {
                    super::$part::$name(&mut world);
                }
            })+)+
        }
    };
}

conformance!(
    tasks:
        a_task_is_read_back_as_it_was_created,
        a_name_is_taken_once_per_population,
        a_task_moves_only_as_its_states_allow,
        a_task_ends_with_its_last_line,
        metrics_are_kept_in_order,
        a_key_of_pseudonyms_is_kept_once_and_destroyed_at_the_end,
        a_forgotten_task_keeps_its_figures_and_names_no_user,
        a_deleted_task_keeps_its_settings_and_gives_back_the_blobs_that_it_alone_names,
        a_pinned_release_is_one_that_was_published_until_the_task_is_deleted,
        the_end_of_a_task_ends_its_sessions,
        an_unknown_row_is_named;
    leases:
        one_process_leads_a_task_at_a_time,
        a_task_names_the_holder_of_its_lease,
        a_process_is_listed_until_it_retires,
        a_later_process_of_a_name_replaces_the_earlier_one,
        processes_without_a_sign_of_life_are_swept,
        a_void_lease_changes_nothing,
        a_new_lease_abandons_what_was_being_released;
    admission:
        one_attempt_is_open_at_a_time,
        a_round_begins_with_its_first_attempt,
        a_subject_is_admitted_once_at_a_time,
        the_schema_decides_on_admission,
        an_exact_schema_admits_in_step_only,
        an_attempt_has_so_many_places,
        an_attempt_stops_taking_devices,
        a_subject_that_sent_nothing_may_come_again,
        a_subject_that_was_ready_may_not_come_again,
        a_session_without_a_hold_still_bars_its_subject,
        sessions_move_forward_only,
        a_barred_subject_is_never_admitted_again,
        a_subject_that_left_is_admitted_to_no_task_of_now_or_later,
        a_revoked_device_is_admitted_nowhere_and_its_refusal_leaves_nothing,
        lost_sessions_of_a_subject_or_a_device_are_limited_in_number_and_pace;
    release:
        a_release_is_reserved_under_its_conditions,
        a_commit_moves_everything_together,
        a_repeated_commit_changes_nothing,
        a_commit_is_refused_under_a_wrong_condition,
        a_commit_refuses_users_who_break_the_schema,
        an_abandoned_attempt_counts_at_once,
        abandoned_attempts_are_listed_until_a_release,
        models_are_served_once_published;
    upkeep:
        a_device_has_one_row,
        a_subject_has_so_many_devices_and_enrols_so_many,
        a_revoked_device_is_not_replaced_by_its_invitation,
        a_departure_moves_in_one_direction_and_names_nobody,
        certificates_are_spent_once_and_issued_within_a_limit,
        sweeping_deletes_what_is_over_and_nothing_else,
        the_audit_log_is_whole,
        state_survives_a_restart;
);

/// Names of the tests that restart the database.
#[cfg(feature = "postgres")]
fn restarts(test: &str) -> bool {
    [
        "an_attempt_stops_taking_devices",
        "a_release_is_reserved_under_its_conditions",
        "the_audit_log_is_whole",
        "state_survives_a_restart",
        "a_barred_subject_is_never_admitted_again",
        "a_subject_that_left_is_admitted_to_no_task_of_now_or_later",
    ]
    .contains(&test)
}
