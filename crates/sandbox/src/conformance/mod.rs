//! The contract of a backend, as cases that any backend can be put through. A case that needs
//! what the machine lacks says so; it never passes in silence.

mod basics;
mod cancel;
mod checkpoints;
mod durable;
mod env;
mod files;
mod fixture;
mod limits;
mod mounts;
mod output;
mod sessions;
mod stdin;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

pub use fixture::Fixture;
use fixture::Stop;

/// No case takes longer, unless something hangs.
const PATIENCE: Duration = Duration::from_secs(120);

type Running = Pin<Box<dyn Future<Output = Result<(), Stop>> + Send>>;

/// One promise.
#[derive(Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    run: fn(Fixture) -> Running,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// What came of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Passed,
    /// Could not be tried here, and why.
    Skipped(String),
    Failed(String),
}

impl Case {
    pub async fn run(&self, fixture: &Fixture) -> Verdict {
        let fixture = fixture.for_case(self.name);
        let case = tokio::spawn((self.run)(fixture));
        match tokio::time::timeout(PATIENCE, case).await {
            Ok(Ok(Ok(()))) => Verdict::Passed,
            Ok(Ok(Err(Stop::Skipped(why)))) => Verdict::Skipped(why),
            Ok(Ok(Err(Stop::Failed(why)))) => Verdict::Failed(why),
            Ok(Err(panic)) => Verdict::Failed(panic.to_string()),
            Err(_) => Verdict::Failed("it hangs".into()),
        }
    }
}

macro_rules! cases {
    ($($group:ident { $($case:ident)* })*) => {
        /// All cases, in an order in which one that fails explains the next.
        pub fn cases() -> Vec<Case> {
            vec![$($(Case {
                name: concat!(stringify!($group), "::", stringify!($case)),
                run: |fixture| Box::pin($group::$case(fixture)),
            }),*),*]
        }
    };
}

cases! {
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
        bytes_that_are_not_text_arrive
        too_much_output_can_be_an_end
        output_comes_while_the_program_runs
        a_slow_reader_loses_nothing
        a_reader_that_stopped_does_not_stop_the_deadline
    }
    stdin {
        input_reaches_the_program
        without_input_it_reads_as_empty
        much_input_is_passed_on
        input_that_nobody_reads_is_no_trouble
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
}
