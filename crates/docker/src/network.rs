//! The way out of a container: what comes to the doors that its guest opens is relayed over the
//! stream to a gateway here.

use std::net::Ipv4Addr;

use brig_egress::{Pool, Rules};
use brig_sandbox::Plan;
use brig_sandbox::doors::doors;
use brig_sandbox::link::{Judge, Unasked};
use brig_sandbox::network::Network;

use crate::commands::Lists;

/// Addresses that DNS hands out. A guest without rights can't add any to its network, but all of
/// 127/8 is there already.
const POOL: Ipv4Addr = Ipv4Addr::new(127, 64, 0, 0);

pub fn plan(plan: &Plan) -> Vec<brig_wire::Door> {
    if !plan.network().is_on() {
        return Vec::new();
    }
    doors(plan).into_iter().map(|(door, _)| door).collect()
}

/// What becomes of what the guest tells unasked.
pub fn serve(plan: &Plan, lists: Option<Lists>) -> Unasked {
    let entries = || doors(plan).into_iter().map(|(_, entry)| entry).collect();
    let network = plan.network().is_on().then(|| {
        let rules = Rules::new(plan.network().rules());
        (Network::relayed(rules, Pool::new(POOL, None)), entries())
    });
    Unasked {
        network,
        judge: lists.map(|lists| Box::new(lists) as Box<dyn Judge>),
    }
}
