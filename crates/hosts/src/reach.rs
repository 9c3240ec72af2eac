//! What kinds of addresses a rule opens.

use std::net::IpAddr;

use crate::address::{Class, RANGES};
use crate::rule::{Pattern, Ports, Rule};

impl Rule {
    /// The worst kind of address that the rule opens: an entry with a network opens whatever it
    /// overlaps. Nothing if it opens only public ones, or a name: a name never leads to an address that
    /// is not public.
    pub fn opens(&self) -> Option<Class> {
        let (first, bits) = match self.pattern() {
            Pattern::Name(_) | Pattern::Below(_) => return None,
            Pattern::Address(address) => (*address, if address.is_ipv4() { 32 } else { 128 }),
            Pattern::Network { first, bits } => (*first, *bits),
        };
        let overlaps = |range: IpAddr, length: u8| {
            let shared = bits.min(length);
            range.is_ipv4() == first.is_ipv4()
                && Pattern::first_of(range, shared) == Pattern::first_of(first, shared)
        };
        let found = RANGES
            .iter()
            .filter(|(range, length, _)| overlaps(*range, *length));
        // The first address may also be mapped from IPv4.
        let all = found.map(|(_, _, class)| *class).chain([Class::of(first)]);
        let severity = |class: &Class| RANGES.iter().position(|(_, _, other)| other == class);
        all.filter(|class| *class != Class::Public)
            .min_by_key(severity)
    }
}

/// What a person should know about a rule that opens such an address. A private network that was
/// named is what was meant, and so is one port of this machine; all of it, and its credentials,
/// seldom are.
pub(crate) fn warning(rule: &Rule, class: Class) -> Option<String> {
    match class {
        Class::Metadata => Some(format!(
            "`{rule}` allows a cloud metadata address: code in the sandbox can get this machine's \
             credentials there"
        )),
        Class::Loopback if is_one_port(rule) => None,
        Class::Loopback | Class::Unspecified => Some(format!(
            "`{rule}` allows {class} addresses: services of this machine itself"
        )),
        Class::LinkLocal => Some(format!(
            "`{rule}` allows link-local addresses, where clouds serve credentials"
        )),
        _ => None,
    }
}

fn is_one_port(rule: &Rule) -> bool {
    matches!(rule.ports(), Ports::One(_)) && matches!(rule.pattern(), Pattern::Address(_))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn a_rule_is_known_by_the_worst_address_that_it_opens() {
        for (text, class) in [
            ("169.254.169.254", Class::Metadata),
            ("169.254.169.254:80", Class::Metadata),
            ("[::ffff:169.254.169.254]:80", Class::Metadata),
            ("169.254.0.0/16", Class::Metadata),
            ("168.0.0.0/7:*", Class::Metadata),
            ("100.100.100.0/24", Class::Metadata),
            ("[fd00:ec2::254]:80", Class::Metadata),
            ("169.254.1.1", Class::LinkLocal),
            ("fe80::/10", Class::LinkLocal),
            ("127.0.0.1:8080", Class::Loopback),
            ("127.0.0.1:*", Class::Loopback),
            ("127.0.0.0/8", Class::Loopback),
            ("::1", Class::Loopback),
            ("0.0.0.0", Class::Unspecified),
            ("10.1.2.3", Class::Private),
            ("8.0.0.0/6", Class::Private),
            ("192.168.0.0/24", Class::Private),
            ("fd12::1", Class::Private),
            ("100.64.0.1", Class::CarrierGrade),
            ("224.0.0.1", Class::Multicast),
            ("192.0.2.1", Class::Reserved),
            ("192.0.2.2/31", Class::Reserved),
            ("198.16.0.0/13", Class::Reserved),
            ("203.0.112.0/20", Class::Reserved),
            ("192.88.98.0/23", Class::Reserved),
            ("192.0.0.0/22", Class::Reserved),
            ("240.0.0.0/5", Class::Reserved),
            ("3ffe::/15", Class::Reserved),
            ("2001:d00::/24", Class::Reserved),
            ("2000::/3", Class::Reserved),
            ("4000::/16", Class::Reserved),
        ] {
            let rule = Rule::parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
            assert_eq!(rule.opens(), Some(class), "{text}");
            let warned = matches!(
                class,
                Class::Metadata | Class::LinkLocal | Class::Loopback | Class::Unspecified
            );
            let wanted = match text {
                "8.0.0.0/6" | "240.0.0.0/5" | "2000::/3" => true,
                "127.0.0.1:8080" => false,
                _ => warned,
            };
            assert_eq!(rule.warning().is_some(), wanted, "{text}");
        }
    }

    #[test]
    fn public_addresses_and_names_open_nothing_of_the_kind() {
        for text in [
            "1.1.1.1",
            "8.8.8.0/24",
            "198.20.0.0/14",
            "203.0.114.0/23",
            "192.88.100.0/22",
            "2606:4700::/32",
            "3f00::/9",
            "[2606:4700::1111]:443",
            "example.com",
            "*.example.com",
            "metadata.google.internal",
        ] {
            assert_eq!(Rule::parse(text).expect(text).opens(), None, "{text}");
        }
    }

    #[test]
    fn a_network_opens_the_class_of_every_address_in_it() {
        let edges = RANGES.iter().flat_map(|(range, length, _)| {
            let (one, all) = match range {
                IpAddr::V4(_) => (1_u128 << (32 - length), u128::from(u32::MAX)),
                IpAddr::V6(_) => (
                    1_u128.checked_shl(128 - u32::from(*length)).unwrap_or(0),
                    u128::MAX,
                ),
            };
            let number = match range {
                IpAddr::V4(address) => u128::from(u32::from(*address)),
                IpAddr::V6(address) => u128::from(*address),
            };
            let last = number + (one - 1);
            let near = [
                number.wrapping_sub(1) & all,
                number,
                last,
                last.wrapping_add(1) & all,
            ];
            near.map(|number| match range {
                IpAddr::V4(_) => {
                    IpAddr::from(Ipv4Addr::from(u32::try_from(number).expect("32 bits")))
                }
                IpAddr::V6(_) => IpAddr::from(Ipv6Addr::from(number)),
            })
        });
        let (mut closed, mut public, mut rules) = (0, 0, 0);
        for address in edges {
            let class = Class::of(address);
            closed += usize::from(class != Class::Public);
            public += usize::from(class == Class::Public);
            let most = if address.is_ipv4() { 32 } else { 128 };
            for bits in 1..=most {
                let first = Pattern::first_of(address, bits);
                // IPv4 written as IPv6 is refused.
                let Ok(rule) = Rule::parse(&format!("{first}/{bits}")) else {
                    continue;
                };
                rules += 1;
                let opens = rule.opens();
                assert!(
                    class == Class::Public || opens.is_some(),
                    "{rule} has {address}"
                );
            }
        }
        assert!(closed > 60 && public > 20, "{closed} and {public}");
        assert!(rules > 3000, "{rules}");
    }
}
