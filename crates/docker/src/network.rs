//! The network of a container: the guest relays connections to its listeners over the stream to a gateway
//! here.

use std::net::Ipv4Addr;

use brig_egress::{Pool, Rules};
use brig_guest_host::link::{CommandObserver, Notifications};
use brig_guest_host::listeners::listeners;
use brig_guest_host::network::Network;
use brig_guest_host::tools::ToolServer;
use brig_sandbox::Plan;

use crate::commands::Lists;
use crate::derived::TOOLS;

/// Addresses that DNS hands out. A guest without capabilities can't add addresses, but all of 127/8 is
/// local already.
pub(crate) const POOL: Ipv4Addr = Ipv4Addr::new(127, 64, 0, 0);

pub(crate) fn plan(plan: &Plan) -> Vec<brig_wire::ListenerSpec> {
    listeners(plan)
        .into_iter()
        .map(|(listener, _)| listener)
        .collect()
}

/// What to do with the notifications of the guest.
pub(crate) fn serve(plan: &Plan, lists: Option<Lists>) -> Notifications {
    let services = listeners(plan).into_iter().map(|(_, service)| service);
    let services = services.collect();
    let rules = Rules::new(plan.network().rules());
    let mut network = Network::relayed(rules, Pool::new(POOL, None));
    if !plan.network().is_on() {
        network = network.closed();
    }
    Notifications {
        network: Some((network, services)),
        tools: ToolServer::relayed(plan.tools(), TOOLS),
        observer: lists.map(|lists| Box::new(lists) as Box<dyn CommandObserver>),
    }
}
