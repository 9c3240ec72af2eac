//! Whether a domain belongs to one party, or lets anyone publish.

use std::collections::HashSet;
use std::sync::LazyLock;

use psl::Type;

use crate::name::Name;

/// Never given out in the public DNS (RFC 2606, RFC 6762, RFC 6761, ICANN 2024).
const RESERVED: [&str; 5] = ["example", "internal", "local", "localhost", "test"];

static PUBLISHED: LazyLock<HashSet<&'static str>> = LazyLock::new(|| {
    include_str!("../data/published.txt")
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect()
});

/// Under which anyone can register a name: `com`, `co.uk`, and any single label that is not
/// reserved, since new ones are given out every year.
pub(crate) fn is_registry(domain: &Name) -> bool {
    match domain.as_str() {
        label if !label.contains('.') => !RESERVED.contains(&label),
        name => suffix_kind(name) == Some(Type::Icann),
    }
}

/// Where anyone can publish under somebody else's name.
pub(crate) fn is_published(name: &Name, and_below: bool) -> bool {
    let own = |name: &str| PUBLISHED.contains(name) || suffix_kind(name) == Some(Type::Private);
    own(name.as_str())
        || name.parents().any(|parent| PUBLISHED.contains(parent))
        || (and_below
            && PUBLISHED
                .iter()
                .any(|known| known.ends_with(&format!(".{name}"))))
}

/// The kind of public suffix that the name is, or that all names right below it are.
fn suffix_kind(name: &str) -> Option<Type> {
    let below = format!("brig-any.{name}");
    let whole = psl::suffix(name.as_bytes()).filter(|suffix| suffix.as_bytes() == name.as_bytes());
    let child = psl::suffix(below.as_bytes()).filter(|suffix| suffix.as_bytes().len() > name.len());
    whole.or(child).and_then(|suffix| suffix.typ())
}
