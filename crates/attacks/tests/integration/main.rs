//! Every attack, on every backend that it is meant for.

mod crun;
mod docker;
mod gvisor;
mod gvisor_groups;
mod native;
mod podman;
mod runc;
