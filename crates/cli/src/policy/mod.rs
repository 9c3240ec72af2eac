//! `brig policy`: checks, explains, tests and compares policies. Nothing is run.

mod check;
mod diff;
mod eval;
pub(crate) mod explain;
pub(crate) mod load;
pub(crate) mod reproduce;
mod test;

use crate::args::PolicyCommand;
use crate::failure::Failure;
use crate::write_out;

pub(crate) async fn run(command: &PolicyCommand) -> u8 {
    let (done, as_json): (Result<u8, Failure>, bool) = match command {
        PolicyCommand::Check(args) => (check::run(args), args.json),
        PolicyCommand::Explain(args) => (explain::run(args).await, args.json),
        PolicyCommand::Test(args) => (test::run(args), args.json),
        PolicyCommand::Diff(args) => (diff::run(args), args.json),
        PolicyCommand::Schema(_) => (Ok(write_out(brig_policy::schema().as_bytes())), false),
        PolicyCommand::Eval(_) => (eval::run(), false),
    };
    done.unwrap_or_else(|failure| {
        failure.report(as_json);
        failure.exit()
    })
}
