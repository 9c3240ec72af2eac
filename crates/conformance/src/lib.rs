//! The contract of a backend, as tests that any backend can be put through with [`contract!`]. A case
//! that needs what the machine lacks is listed as skipped.

mod basics;
mod cancel;
mod checkpoints;
mod durable;
mod env;
pub mod fake;
mod files;
mod fixture;
mod limits;
mod mounts;
mod output;
mod program;
mod sessions;
mod stdin;
mod tools;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

#[doc(hidden)]
pub use brig_testing::test_name;
pub use fixture::Fixture;
use fixture::Stop;
pub use program::Step;

/// No case takes longer, unless something hangs: not even a dozen instances on an emulated machine.
const PATIENCE: Duration = Duration::from_secs(600);

type CaseFuture = Pin<Box<dyn Future<Output = Result<(), Stop>> + Send>>;

/// One promise.
struct Case {
    name: &'static str,
    run: fn(Fixture) -> CaseFuture,
}

/// Runs a case of [`contract!`] and fails if it does. `test` names it in the list of what was skipped.
#[doc(hidden)]
pub async fn run(name: &str, test: &str, fixture: Fixture) {
    let case = cases().into_iter().find(|case| case.name == name);
    let case = case.unwrap_or_else(|| panic!("there is no case {name}"));
    let reasons = fixture.reasons;
    let ended = tokio::time::timeout(PATIENCE, tokio::spawn((case.run)(fixture))).await;
    match ended.unwrap_or_else(|_| panic!("it hangs")) {
        Ok(Ok(())) => {}
        Ok(Err(Stop::Skipped(why))) => {
            let known = |reasons: &[&str]| reasons.iter().any(|reason| why.contains(reason));
            assert!(reasons.is_none_or(known), "skipped: {why}");
            brig_testing::skip(test, &why);
        }
        Ok(Err(Stop::Failed(why))) => panic!("{why}"),
        Err(error) => panic!("{error}"),
    }
}

macro_rules! cases {
    ($d:tt $($group:ident { $($case:ident)* })*) => {
        fn cases() -> Vec<Case> {
            vec![$($(Case {
                name: concat!(stringify!($group), "::", stringify!($case)),
                run: |fixture| Box::pin($group::$case(fixture)),
            }),*),*]
        }

        /// One test for each case, in a module for each group: of all groups, or of those that are named.
        /// `fixture` is an async function in the same module that returns an `Option<Fixture>`; without one,
        /// it has said why.
        #[macro_export]
        macro_rules! contract {
            ($d fixture:ident) => { $crate::contract! { $d fixture: $($group)* } };
            ($d fixture:ident: $d($d only:ident)+) => { $d($crate::contract! { @$d only $d fixture })+ };
            $((@$group $d fixture:ident) => {
                mod $group {
                    $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                    async fn $case() {
                        if let Some(fixture) = super::$d fixture().await {
                            let name = concat!(stringify!($group), "::", stringify!($case));
                            $crate::run(name, &$crate::test_name!(), fixture).await;
                        }
                    })*
                }
            };)*
        }
    };
}

cases! {
    $
    basics {
        a_program_is_answered_with_what_it_did
        exit_codes_are_the_programs_own
        a_signal_is_128_and_its_number
        what_does_not_exist_cannot_run
        python_runs
        bash_runs
        node_runs
        code_of_any_size_runs
        every_execution_has_a_fresh_interpreter
        an_execution_has_its_own_folder
        the_peak_is_that_of_one_execution
        usage_is_measured
        a_run_on_its_own_leaves_nothing
    }
    output {
        streams_are_apart_and_counted
        a_long_stream_is_cut_and_counted
        a_stream_of_exactly_the_limit_is_whole
        one_byte_too_many_can_be_an_end
        bytes_that_are_not_text_arrive
        too_much_output_can_be_an_end
        output_comes_while_the_program_runs
        a_slow_reader_loses_nothing
        a_reader_gets_all_of_it
        a_reader_that_stopped_does_not_stop_the_deadline
    }
    stdin {
        input_reaches_the_program
        without_input_it_reads_as_empty
        much_input_is_passed_on
        unread_input_does_not_block_the_end
    }
    env {
        nothing_of_the_caller_leaks
        variables_that_were_given_arrive
        loader_variables_are_refused
    }
    limits {
        the_deadline_ends_the_whole_tree
        the_session_lives_on_after_a_deadline
        too_much_memory_is_an_end
        processes_are_limited
        the_disk_is_limited
        cpu_is_limited
        the_network_is_off
        the_root_is_read_only
        values_out_of_range_are_refused
        nothing_outlives_its_execution
    }
    cancel {
        a_cancelled_execution_ends_with_its_tree
        it_can_be_cancelled_by_its_id
        dropping_it_cancels_it
        it_runs_exactly_once
        signals_are_passed_on
        a_signal_for_a_job_reaches_all_of_it
    }
    files {
        what_goes_in_comes_out
        a_large_file_goes_in_and_out
        folders_are_listed
        odd_names_are_names
        links_are_not_followed
        a_pipe_does_not_block
        paths_stay_in_the_workspace
        more_than_the_disk_is_refused
    }
    mounts {
        a_folder_is_seen_and_cannot_be_written
        a_writable_folder_can_be_written
        a_file_can_be_mounted
        a_folder_of_the_host_can_be_the_workspace
        what_is_protected_is_refused
        a_secret_in_a_mounted_folder_is_hidden
    }
    sessions {
        files_stay_between_executions
        sessions_do_not_see_each_other
        names_are_exact
        an_unknown_session_is_gone_already
        executions_run_side_by_side
        destroy_wins
        statuses_are_told
        what_ended_can_be_looked_up
    }
    durable {
        files_outlive_the_process
        removed_files_stay_removed
        many_generations_stay_correct
        a_killed_instance_is_replaced
        one_process_at_a_time
        destroy_from_another_process_wins
        a_full_session_stays_within_its_limit
    }
    checkpoints {
        a_state_is_saved_and_restored
        a_fork_stands_alone
        a_state_can_be_deleted
        a_changed_state_is_refused
        nothing_is_saved_while_something_runs
        special_files_are_left_out
    }
    tools {
        a_tool_is_called_by_its_name
        every_language_can_call_one
        only_listed_tools_exist
        every_policy_must_list_a_tool
        a_name_that_nobody_registered_is_refused
        rules_decide_by_name_and_arguments
        arguments_and_results_are_checked
        calls_are_counted
        a_call_ends_with_its_execution
        many_threads_call_at_once
        malformed_requests_end_only_their_connection
        mutated_requests_end_only_their_connection
        a_call_waits_for_its_approval
        code_waits_for_its_approval
        a_tool_may_run_code_itself
        a_tool_may_run_code_in_its_own_session
        a_call_is_recorded_for_its_own_execution
    }
}
