use std::time::Duration;

/// Limits of one gateway.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Open connections. One more is closed at once.
    pub connections: usize,
    /// For a client to send its request: an HTTP header, a SOCKS request, a ClientHello.
    pub asking: Duration,
    /// For the lookup of a name.
    pub resolve: Duration,
    /// For a connection to one of the addresses.
    pub dial: Duration,
    /// Without a byte in either direction.
    pub idle: Duration,
    /// The longest duration of one connection.
    pub lifetime: Duration,
    /// The header of a request, in bytes.
    pub head: usize,
    /// A ClientHello, in bytes.
    pub hello: usize,
    /// Names that DNS remembers at once.
    pub names: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 5120,
            asking: Duration::from_secs(15),
            resolve: Duration::from_secs(10),
            dial: Duration::from_secs(10),
            idle: Duration::from_secs(15 * 60),
            lifetime: Duration::from_secs(24 * 60 * 60),
            head: 64 * 1024,
            hello: 32 * 1024,
            names: 16 * 1024,
        }
    }
}
