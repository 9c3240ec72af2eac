use std::time::Duration;

/// What one gateway spends on one sandbox. Everything has an end.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Open connections. One more is closed at once.
    pub connections: usize,
    /// For a client to say what it wants: a request's head, a SOCKS request, a TLS hello.
    pub asking: Duration,
    /// For the lookup of a name.
    pub resolve: Duration,
    /// For a connection to one of the addresses.
    pub dial: Duration,
    /// Without a byte in either direction.
    pub idle: Duration,
    /// Of one connection.
    pub lifetime: Duration,
    /// The head of a request, in bytes.
    pub head: usize,
    /// The first message of TLS, in bytes.
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
