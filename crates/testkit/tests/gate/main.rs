//! The gate, from a program's side: the same table of promises for both triggers, `fuse` and `calls`. Owns the table; the
//! promises are in the modules, one per kind. Run as root and as an ordinary user.
#![forbid(unsafe_code)]

mod changes;
mod ends;
mod grants;
mod made;
mod opens;
mod stage;
mod waits;

macro_rules! for_both_triggers {
    ($($kind:ident::$name:ident;)+) => {
        mod fuse {
            $(#[test]
            fn $name() {
                crate::stage::play("fuse", super::$kind::$name);
            })+
        }
        mod calls {
            $(#[test]
            fn $name() {
                crate::stage::play("calls", super::$kind::$name);
            })+
        }
    };
}

for_both_triggers! {
    opens::an_approved_open_goes_on_with_a_native_descriptor;
    opens::a_denied_open_fails_with_eacces;
    opens::an_approved_program_starts;
    opens::a_denied_program_does_not_start;
    opens::a_script_and_its_unknown_interpreter_start_when_both_are_approved;
    opens::a_script_does_not_start_without_its_interpreter;
    opens::an_approved_listing_shows_names_and_opens_none_of_them;
    opens::an_approved_library_is_mapped_and_a_denied_one_is_not;
    opens::approved_once_is_asked_again;
    opens::a_denial_that_is_kept_is_not_asked_again;
    opens::a_program_in_an_unknown_directory_is_found_by_its_name;
    opens::a_link_is_asked_by_what_it_leads_to;
    grants::a_directory_that_is_approved_needs_no_further_question;
    grants::secrets_in_an_approved_directory_stay_hidden;
    grants::a_directory_that_cannot_be_searched_for_secrets_is_not_given;
    grants::the_home_is_never_given_as_a_whole;
    grants::what_was_writable_below_an_approved_directory_stays_so;
    grants::a_file_that_is_replaced_on_the_host_is_seen_anew_without_a_question;
    grants::who_stood_in_a_directory_before_it_was_given_goes_on_there;
    grants::who_lists_the_directory_it_stands_in_sees_what_was_given;
    grants::ways_out_of_an_approved_directory_are_asked;
    grants::what_was_given_for_reading_is_not_opened_again_for_writing;
    grants::what_was_asked_about_is_what_is_given;
    changes::a_write_asks_for_writing;
    changes::a_new_file_is_asked_for_and_made_on_the_host;
    changes::other_changes_are_refused_at_once;
    waits::fifty_questions_wait_and_another_thread_works;
    waits::calls_in_one_directory_wait_for_one_answer;
    waits::a_killed_process_is_reaped_at_once_and_its_question_goes;
    waits::a_signal_with_a_handler_does_not_end_the_wait;
    waits::a_question_that_nobody_answers_is_denied;
    waits::a_flood_of_questions_is_denied_and_others_are_served;
    ends::a_killed_supervisor_takes_everybody_along;
    ends::without_a_broker_nothing_is_given;
}

/// Where the root is no FUSE file system, what an answer made is mounted, and directories are not made: `approvals.md` says so.
macro_rules! for_fuse_alone {
    ($($name:ident;)+) => {
        mod fuse_alone {
            $(#[test]
            fn $name() {
                crate::stage::play("fuse", crate::made::$name);
            })+
        }
    };
}

for_fuse_alone! {
    a_file_that_was_made_is_renamed_and_removed;
    a_file_that_was_made_is_itself_to_every_call;
    a_name_that_was_not_told_is_asked_about;
    a_new_name_never_takes_the_place_of_the_hosts_file;
    a_name_that_the_session_gave_up_is_the_hosts_again;
    a_file_that_the_host_replaced_is_not_the_sessions;
    what_was_made_cannot_be_called_what_is_protected;
    an_answer_for_once_opens_nothing_again;
    more_files_than_are_served_are_made_all_the_same;
    a_directory_is_the_sessions_alone_until_something_is_opened_below;
    a_directory_that_is_denied_is_never_made;
    a_process_that_goes_into_a_new_directory_writes_there;
    what_the_host_makes_at_the_name_of_a_new_directory_is_not_given;
    a_directory_of_the_host_is_not_given_with_what_the_session_had_made_in_it;
    a_new_directory_above_protected_names_is_made_and_not_given_whole;
    a_directory_with_protected_names_that_are_missing_is_not_given_whole;
    what_moves_along_with_a_new_directory_is_called_nothing_that_is_ruled;
    the_first_open_below_a_new_directory_above_protected_names_succeeds;
    many_first_opens_below_a_missing_cache_all_find_one_cache;
    many_first_opens_below_a_new_directory_all_find_it;
    what_replaces_a_directory_that_was_given_is_not_given;
    no_file_that_the_host_saves_is_removed_for_one_of_the_session;
    a_new_directory_is_renamed_removed_and_listed;
    secrets_in_a_new_directory_stay_hidden;
    a_cache_that_is_missing_is_thrown_away;
    a_flood_of_new_directories_is_bounded;
    a_program_that_syncs_without_end_keeps_no_other_from_its_answer;
}
