//! The list of rows, once: the table of the runner and the tests of nextest are made of it. Owns the names; a name holds
//! the row's id, so that the suite and docs/attack-corpus.md can be held against each other.

use crate::row::Row;
use crate::rows::{
    aliases, answers, bits, calls, commits, covers, depths, egress_places, egress_requests, egress_spelling, gate,
    homes, ipc, keeper, kernel_files, launch, leftovers, masked, names, obeyed, processes, races, records, refusals,
    resources, sockets, streams, tracked, waits, workspace,
};

/// Hands every row to the macro `$use`, as `fn name() => row;`.
#[macro_export]
macro_rules! every_row {
    ($use:ident) => {
        $use! {
            fn escape_a01_leaked_fds_are_closed() => launch::A01;
            fn escape_a02_launcher_binary_cannot_be_opened() => launch::A02;
            fn escape_a05_fake_proc_is_refused() => refusals::A05;
            fn escape_a06_planted_links_make_and_grant_nothing() => names::A06;
            fn escape_a07_parent_symlink_after_the_survey_is_refused() => refusals::A07;
            fn escape_a08_swapped_grant_is_refused() => refusals::A08;
            fn escape_a09_setuid_copy_refuses_to_run() => refusals::A09;
            fn escape_a10_child_killed_before_its_map_leaves_none() => refusals::A10;
            fn escape_a11_command_named_like_an_option_is_not_found() => launch::A11;
            fn escape_a12_variables_that_carry_code_are_absent() => launch::A12;
            fn escape_a13_nothing_runs_without_namespaces() => refusals::A13;
            fn escape_a14_every_way_to_start_has_the_same_walls() => launch::A14;
            fn escape_a15_missing_protected_names_cannot_be_made() => names::A15;
            fn escape_a16_parents_of_protected_paths_cannot_be_renamed() => names::A16;
            fn escape_a17_what_is_closed_is_closed_under_every_mount() => aliases::A17;
            fn escape_a18_replaced_names_are_covered_again_and_reported() => keeper::A18;
            fn escape_a19_standard_streams_lead_nowhere_else() => streams::A19;
            fn escape_a20_home_of_the_password_database_is_a_home() => homes::A20;
            fn escape_a24_secrets_below_the_project_are_hidden() => depths::A24;
            fn escape_a18_hidden_names_of_read_only_trees_stay_hidden() => covers::A18;
            fn escape_a18_hidden_names_in_a_transaction_need_no_keeper() => races::A18;
            fn escape_b01_core_pattern_is_read_only() => kernel_files::B01;
            fn escape_b02_machine_switches_are_closed() => kernel_files::B02;
            fn escape_b03_cgroups_are_out_of_reach() => kernel_files::B03;
            fn escape_b04_ns_last_pid_cannot_be_written() => kernel_files::B04;
            fn escape_b05_kernel_descriptions_are_masked() => kernel_files::B05;
            fn escape_b06_init_is_no_deputy() => processes::B06;
            fn escape_b07_supervisor_cannot_be_seen() => processes::B07;
            fn escape_b07_gate_is_out_of_reach() => gate::B07_GATE;
            fn escape_b08_nothing_relies_on_yama() => processes::B08;
            fn escape_b09_user_namespaces_cannot_be_nested() => calls::B09;
            fn escape_b10_setns_is_refused() => calls::B10;
            fn escape_b11_abstract_sockets_of_the_host_are_unreachable() => ipc::B11;
            fn escape_b12_service_sockets_are_not_in_the_view() => ipc::B12;
            fn escape_b12_sockets_in_given_directories_are_covered() => ipc::B12_GIVEN;
            fn escape_b13_no_descriptors_are_received() => ipc::B13;
            fn escape_b14_shared_memory_of_the_host_is_absent() => ipc::B14;
            fn escape_b15_keyrings_are_refused() => calls::B15;
            fn escape_b16_terminal_injection_is_refused() => calls::B16;
            fn escape_b17_ioctl_is_compared_in_32_bits() => calls::B17;
            fn escape_b18_clock_and_hostname_cannot_be_set() => calls::B18;
            fn escape_b19_kill_everybody_reaches_nobody() => processes::B19;
            fn escape_b20_killed_supervisor_leaves_no_processes() => processes::B20;
            fn escape_b21_secrets_are_in_no_environment() => launch::B21;
            fn escape_b22_files_of_tools_read_without_secrets() => masked::B22;
            fn escape_c01_io_uring_is_absent() => calls::C01;
            fn escape_c02_i386_calls_are_killed() => calls::C02;
            fn escape_c03_x32_calls_are_killed() => calls::C03;
            fn escape_c04_unknown_calls_are_absent() => calls::C04;
            fn escape_c05_flipped_path_reads_nothing_unapproved() => gate::C05;
            fn escape_c06_stale_notifications_do_not_hang() => calls::C06;
            fn escape_c07_mount_calls_are_refused() => calls::C07;
            fn escape_c08_open_by_handle_is_refused() => calls::C08;
            fn escape_c09_bpf_and_perf_are_refused() => calls::C09;
            fn escape_c10_userfaultfd_is_refused() => calls::C10;
            fn escape_c11_machine_administration_is_refused() => calls::C11;
            fn escape_c12_vsock_is_refused() => sockets::C12;
            fn escape_c13_rare_socket_families_are_refused() => sockets::C13;
            fn escape_c14_raw_sockets_are_refused() => sockets::C14;
            fn escape_c15_netlink_is_route_only() => sockets::C15;
            fn escape_c16_setuid_bits_do_not_count() => processes::C16;
            fn escape_c17_capabilities_are_empty() => processes::C17;
            fn escape_c18_device_nodes_cannot_be_made_or_used() => kernel_files::C18;
            fn escape_c19_execution_domains_are_refused() => calls::C19;
            fn escape_c20_kernel_log_is_out_of_reach() => kernel_files::C20;
            fn escape_c21_every_thread_has_the_filter() => processes::C21;
            fn escape_d01_processes_past_the_limit_are_refused() => resources::D01;
            fn escape_d01_fork_bomb_is_ended_and_a_neighbour_starts() => resources::D01_BOMB;
            fn escape_d02_memory_past_the_limit_ends_the_session() => resources::D02;
            fn escape_d02_files_that_are_memory_count_as_memory() => resources::D02_FILES;
            fn escape_d03_realtime_classes_are_refused() => resources::D03;
            fn escape_d03_one_cpu_is_one_cpu() => resources::D03_CPUS;
            fn escape_d03_cpu_time_of_short_lived_processes_counts() => resources::D03_TIME;
            fn escape_d04_output_flood_is_ended() => resources::D04;
            fn escape_d05_private_file_systems_are_bounded() => resources::D05;
            fn escape_d05_disks_of_the_host_are_not_filled() => resources::D05_STORAGE;
            fn escape_d05_a_transaction_does_not_fill_the_disk() => commits::D05;
            fn escape_d06_huge_sparse_files_are_refused() => resources::D06;
            fn escape_d06_huge_sparse_files_are_not_committed() => commits::D06;
            fn escape_d07_descriptors_and_inotify_are_bounded() => resources::D07;
            fn escape_d08_deep_and_wide_trees_are_removed_within_a_budget() => leftovers::D08;
            fn escape_d08_deep_trees_are_committed_within_a_budget() => commits::D08;
            fn escape_d09_odd_files_do_not_hang_the_next_launch() => leftovers::D09;
            fn escape_d09_odd_files_are_not_committed_and_hang_nothing() => commits::D09;
            fn escape_d10_flood_of_refused_calls_ends_the_session() => resources::D10;
            fn escape_d10_flood_of_questions_is_denied() => gate::D10_QUESTIONS;
            fn escape_e01_links_out_of_the_project_are_not_written_through() => commits::E01;
            fn escape_e02_what_a_link_leads_to_is_not_made() => commits::E02;
            fn escape_e03_exchanged_directories_lead_no_commit_out() => races::E03;
            fn escape_e04_exchanged_directories_lead_no_rollback_out() => races::E04;
            fn escape_e05_prefix_of_a_grant_is_no_grant() => names::E05;
            fn escape_e06_working_directory_grants_nothing_new() => names::E06;
            fn escape_e07_a_request_widens_no_grant() => answers::E07;
            fn escape_e08_commits_break_hard_links() => commits::E08;
            fn escape_e09_lent_rights_are_taken_off_at_a_commit() => commits::E09;
            fn escape_e10_forged_attributes_of_overlays_mean_nothing() => commits::E10;
            fn escape_e11_archives_reach_nothing_outside() => commits::E11;
            fn escape_e12_git_hooks_and_config_are_read_only() => workspace::E12;
            fn escape_e12_git_hooks_wait_for_their_own_word() => waits::E12;
            fn escape_e13_host_git_runs_nothing_of_a_transaction() => waits::E13;
            fn escape_e14_forged_git_pointer_grants_nothing() => workspace::E14;
            fn escape_e14_git_pointers_wait_for_their_own_word() => waits::E14;
            fn escape_e15_submodule_and_bare_repositories_are_protected() => workspace::E15;
            fn escape_e15_repositories_of_submodules_wait_for_their_own_word() => waits::E15;
            fn escape_d11_names_that_a_session_left_do_not_slow_the_next_start() => depths::D11;
            fn escape_e16_agent_configuration_is_read_only() => workspace::E16;
            fn escape_e16_agent_configuration_waits_for_its_own_word() => waits::E16;
            fn escape_e17_what_the_host_executes_is_shown_apart() => waits::E17;
            fn escape_e18_shell_files_and_path_directories_are_read_only() => names::E18;
            fn escape_e26_commits_empty_no_hidden_file() => tracked::E26;
            fn escape_e26_commits_of_a_transaction_empty_no_hidden_file() => waits::E26;
            fn escape_e19_other_spellings_have_the_same_verdict() => workspace::E19;
            fn escape_e19_other_spellings_wait_for_their_own_word() => waits::E19;
            fn escape_e20_killed_commits_are_whole_or_not_at_all() => races::E20;
            fn escape_e21_planted_names_are_not_written_through() => races::E21;
            fn escape_e22_a_repository_at_the_root_waits() => waits::E22;
            fn escape_e23_names_past_a_bound_wait_for_their_own_word() => waits::E23;
            fn escape_e24_worktree_configuration_waits_for_its_own_word() => waits::E24;
            fn escape_e27_names_that_hosts_obey_on_opening_are_read_only() => obeyed::E27;
            fn escape_e27_names_that_hosts_obey_are_reported_where_they_are_made() => obeyed::E27_REPORTED;
            fn escape_e27_names_that_hosts_obey_wait_for_their_own_word() => waits::E27;
            fn escape_e25_bits_that_lend_rights_are_refused() => bits::E25;
            fn escape_f01_what_was_shown_is_what_is_given() => answers::F01;
            fn escape_f02_escapes_in_names_are_printable() => records::F02;
            fn escape_f03_turned_and_invisible_text_is_shown() => records::F03;
            fn escape_f04_padding_hides_no_end() => records::F04;
            fn escape_f05_arguments_of_an_approved_program_approve_nothing() => answers::F05;
            fn escape_f06_chained_programs_are_asked_each() => answers::F06;
            fn escape_f07_environment_is_not_carried_over() => answers::F07;
            fn escape_f08_planted_program_is_not_the_approved_one() => answers::F08;
            fn escape_f09_extra_fields_of_an_answer_are_refused() => answers::F09;
            fn escape_f10_edited_project_policy_is_asked_again() => records::F10;
            fn escape_f11_nobody_inside_answers() => answers::F11;
            fn escape_f12_only_a_verdict_is_a_verdict() => answers::F12;
            fn escape_f13_late_and_replayed_answers_are_dropped() => answers::F13;
            fn escape_f14_flood_is_denied_with_one_summary() => gate::F14;
            fn escape_f15_newline_in_a_path_is_one_record() => records::F15;
            fn escape_f16_edited_log_is_found() => records::F16;
            fn escape_g01_nothing_goes_past_the_broker() => egress_places::G01;
            fn escape_g02_empty_list_allows_nothing() => egress_places::G02;
            fn escape_g03_rebound_name_reaches_nothing_private() => egress_places::G03;
            fn escape_g04_one_private_address_refuses_all() => egress_places::G04;
            fn escape_g05_alias_of_a_private_name_is_refused() => egress_places::G05;
            fn escape_g06_ipv4_inside_ipv6_is_judged() => egress_places::G06;
            fn escape_g07_unspecified_addresses_are_refused() => egress_places::G07;
            fn escape_g08_other_notations_of_addresses_are_refused() => egress_spelling::G08;
            fn escape_g09_metadata_services_are_refused() => egress_places::G09;
            fn escape_g10_addresses_that_are_not_public_are_refused() => egress_places::G10;
            fn escape_g11_zero_byte_in_a_name_is_refused() => egress_spelling::G11;
            fn escape_g12_spelling_does_not_change_the_verdict() => egress_spelling::G12;
            fn escape_g13_names_are_compared_label_by_label() => egress_spelling::G13;
            fn escape_g14_user_before_the_host_is_refused() => egress_spelling::G14;
            fn escape_g15_lookalike_is_refused_and_shown() => egress_spelling::G15;
            fn escape_g16_zone_of_an_address_is_refused() => egress_spelling::G16;
            fn escape_g17_other_ports_are_refused() => egress_places::G17;
            fn escape_g18_address_of_an_allowed_name_is_refused() => egress_places::G18;
            fn escape_g19_target_and_host_must_agree() => egress_requests::G19;
            fn escape_g20_tls_must_name_the_host() => egress_requests::G20;
            fn escape_g21_port_of_tls_carries_tls_only() => egress_requests::G21;
            fn escape_g22_redirect_is_a_new_decision() => egress_requests::G22;
            fn escape_g23_ambiguous_requests_are_refused() => egress_requests::G23;
            fn escape_g24_headers_of_the_hop_are_taken_off() => egress_requests::G24;
            fn escape_g25_upgrade_and_trace_are_refused() => egress_requests::G25;
            fn escape_g26_socks_connects_only() => egress_requests::G26;
            fn escape_g27_lookups_carry_no_data() => egress_requests::G27;
            fn escape_g28_requests_end_in_time() => egress_requests::G28;
            fn escape_g29_relay_inside_changes_nothing() => egress_places::G29;
            fn escape_g30_methods_and_paths_bound_a_host() => egress_requests::G30;
            fn escape_g31_no_proxy_behind_ours() => egress_places::G31;
            fn escape_g32_ambiguous_paths_are_refused() => egress_requests::G32;
        }
    };
}

macro_rules! table {
    ($(fn $name:ident() => $row:expr;)+) => {
        /// Every row with its name, in the order of the corpus.
        pub static ROWS: &[(&str, &Row)] = &[$((stringify!($name), &$row)),+];
    };
}

every_row!(table);

/// The row of this name.
pub fn find(name: &str) -> Option<&'static Row> {
    ROWS.iter().find(|(known, _)| *known == name).map(|(_, row)| *row)
}
