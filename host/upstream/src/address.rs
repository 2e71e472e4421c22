//! Which network an address belongs to, and which addresses no server may have.
//!
//! The tables are the special-purpose registries of RFC 6890 and its successors, as of 2026. What
//! carries a second address inside (v4-mapped, NAT64) is judged by that one; tunnels whose far end
//! cannot be told (6to4, Teredo) are refused, and so are the addresses at which clouds hand out
//! credentials, whatever a grant says.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use gristmill_policies::Network;

/// Where an address leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// To a network that a grant may name.
    In(Network),
    /// Nowhere that a server may be, with the reason.
    Never(&'static str),
}

const METADATA: &str = "a cloud's metadata service";

/// Metadata services outside the link-local ranges: Alibaba Cloud, Azure, Oracle Cloud.
const METADATA_V4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(192, 0, 0, 192),
];

/// Metadata services in the unique local range, besides all of EC2's `fd00:ec2::/32`: Google Cloud,
/// Scaleway.
const METADATA_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42),
];

/// Where this address leads.
#[must_use]
pub fn verdict(address: IpAddr) -> Verdict {
    match address {
        IpAddr::V4(address) => v4(address),
        IpAddr::V6(address) => v6(address),
    }
}

/// The address that is dialled: a v4-mapped one as the v4 address it is.
#[must_use]
pub fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

fn v4(address: Ipv4Addr) -> Verdict {
    if METADATA_V4.contains(&address) {
        return Verdict::Never(METADATA);
    }
    match address.octets() {
        [127, ..] => Verdict::In(Network::Loopback),
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => {
            Verdict::In(Network::Private)
        }
        [0, ..] => Verdict::Never("unspecified"),
        [169, 254, ..] => Verdict::Never("link-local, where metadata services are"),
        [192, 0, 0, _] => Verdict::Never("kept for protocols"),
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => {
            Verdict::Never("kept for documentation")
        }
        [192, 88, 99, _] => Verdict::Never("a 6to4 relay"),
        [198, 18..=19, ..] => Verdict::Never("kept for benchmarks"),
        [224..=239, ..] => Verdict::Never("multicast"),
        [255, 255, 255, 255] => Verdict::Never("broadcast"),
        [240..=255, ..] => Verdict::Never("reserved"),
        _ => Verdict::In(Network::Public),
    }
}

fn v6(address: Ipv6Addr) -> Verdict {
    if METADATA_V6.contains(&address) {
        return Verdict::Never(METADATA);
    }
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Verdict::Never("unspecified"),
        [0, 0, 0, 0, 0, 0, 0, 1] => Verdict::In(Network::Loopback),
        [0, 0, 0, 0, 0, 0xffff, high, low] => v4(embedded(high, low)),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => match v4(embedded(high, low)) {
            // A translator stands in the public network; what it is told to reach must be there too.
            Verdict::In(Network::Public) => Verdict::In(Network::Public),
            Verdict::In(_) => {
                Verdict::Never("a translated address of a network that is not public")
            }
            never => never,
        },
        [0x64, 0xff9b, ..] => Verdict::Never("a local translation prefix"),
        [0, ..] => Verdict::Never("reserved"),
        [0x2001, 0..=0x1ff, ..] => Verdict::Never("kept for protocols, Teredo among them"),
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Verdict::Never("kept for documentation"),
        [0x2002, ..] => Verdict::Never("a 6to4 tunnel"),
        [0xfd00, 0xec2, ..] => Verdict::Never(METADATA),
        [0x2000..=0x3fff, ..] => Verdict::In(Network::Public),
        [0xfc00..=0xfdff, ..] => Verdict::In(Network::Private),
        [0xfe80..=0xfebf, ..] => Verdict::Never("link-local"),
        [0xff00..=0xffff, ..] => Verdict::Never("multicast"),
        _ => Verdict::Never("reserved"),
    }
}

fn embedded(high: u16, low: u16) -> Ipv4Addr {
    let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
    Ipv4Addr::new(a, b, c, d)
}
