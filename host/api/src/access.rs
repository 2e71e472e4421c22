//! Who may come in: which addresses may be listened on, which hosts and origins pass. Keys have a
//! module of their own ([`crate::keys`]).

use std::net::{IpAddr, SocketAddr};

use gristmill_core::{Error, Result};

use crate::keys::KeyRing;

/// Refuses to listen where strangers can connect, unless a key keeps them out.
///
/// # Errors
/// `invalid-request` for an address other than loopback without a live key.
pub fn check_bind(address: SocketAddr, keys: &KeyRing) -> Result<()> {
    if address.ip().to_canonical().is_loopback() || keys.any() {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "refusing to listen on {address} without a key: anybody who can reach it could use it; make one (gristmill key add NAME), set an API token, or listen on 127.0.0.1"
    )))
}

/// The token of an `Authorization` header that is a bearer's.
#[must_use]
pub fn bearer(header: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = header.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(token)
}

/// Whether a `Host` header may reach a server bound to loopback: local names and addresses, and what
/// the operator allows. A web page that points its own name at 127.0.0.1 does not get in.
#[must_use]
pub fn host(header: &str, allowed: &[String]) -> bool {
    let name = host_name(header).trim_end_matches('.').to_ascii_lowercase();
    if let Ok(ip) = name.parse::<IpAddr>() {
        return local(ip);
    }
    name == "localhost"
        || [".localhost", ".local", ".internal"].iter().any(|end| name.ends_with(end))
        || allowed.iter().any(|allowed| allowed.eq_ignore_ascii_case(&name))
}

/// The name or address in `name[:port]` or `[address][:port]`.
fn host_name(header: &str) -> &str {
    match header.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => match header.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => header,
        },
    }
}

fn local(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_private() || ip.is_unspecified(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unspecified(),
    }
}

/// Whether a page of this origin may use the API: local pages, desktop shells and browser
/// extensions, the server's own pages, and what the operator allows.
#[must_use]
pub fn origin(origin: &str, host: Option<&str>, allowed: &[String]) -> bool {
    let Some((scheme, rest)) = origin.split_once("://") else { return false };
    match scheme {
        "http" | "https" => {
            let name = host_name(rest).to_ascii_lowercase();
            host.is_some_and(|host| host.eq_ignore_ascii_case(rest))
                || ["localhost", "127.0.0.1", "0.0.0.0", "::1"].contains(&name.as_str())
                || allowed.iter().any(|pattern| matches(pattern, origin))
        }
        "app"
        | "file"
        | "tauri"
        | "vscode-webview"
        | "vscode-file"
        | "chrome-extension"
        | "moz-extension"
        | "safari-web-extension" => true,
        _ => allowed.iter().any(|pattern| matches(pattern, origin)),
    }
}

/// A pattern with at most one `*`.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern.eq_ignore_ascii_case(text),
        Some((head, tail)) => {
            text.len() >= head.len() + tail.len() && text.starts_with(head) && text.ends_with(tail)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_open() {
        let none = KeyRing::default();
        let one = KeyRing::open(&["secret".to_owned()], None).unwrap();
        for (address, keys, good) in [
            ("127.0.0.1:11450", &none, true),
            ("127.8.8.8:1", &none, true),
            ("[::1]:11450", &none, true),
            ("[::ffff:127.0.0.1]:1", &none, true),
            ("0.0.0.0:11450", &none, false),
            ("[::]:11450", &none, false),
            ("192.168.1.5:80", &none, false),
            ("0.0.0.0:11450", &one, true),
        ] {
            assert_eq!(check_bind(address.parse().unwrap(), keys).is_ok(), good, "{address}");
        }
        for empty in ["", " "] {
            assert!(KeyRing::open(&[empty.to_owned()], None).is_err());
        }
    }

    #[test]
    fn a_bearers_token_is_what_follows_the_word() {
        for (header, token) in [
            ("Bearer alpha", Some("alpha")),
            ("bearer beta", Some("beta")),
            ("Basic alpha", None),
            ("alpha", None),
            ("Bearer", None),
            ("", None),
        ] {
            assert_eq!(bearer(header.as_bytes()), token.map(str::as_bytes), "{header}");
        }
    }

    #[test]
    fn hosts_that_are_not_local_do_not_pass() {
        let allowed = ["mill.example.org".to_owned()];
        for (header, good) in [
            ("localhost:11450", true),
            ("LOCALHOST", true),
            ("127.0.0.1:11450", true),
            ("[::1]:11450", true),
            ("10.1.2.3", true),
            ("host.docker.internal:11450", true),
            ("mill.example.org", true),
            ("evil.example.org", false),
            ("localhost.evil.org", false),
            ("8.8.8.8", false),
            ("", false),
        ] {
            assert_eq!(host(header, &allowed), good, "{header}");
        }
    }

    #[test]
    fn origins_follow_the_same_rule() {
        let allowed = ["https://*.example.org".to_owned()];
        for (from, good) in [
            ("http://localhost:3000", true),
            ("https://127.0.0.1", true),
            ("http://[::1]:8080", true),
            ("app://anything", true),
            ("tauri://localhost", true),
            ("chrome-extension://abcdef", true),
            ("http://mill.lan:11450", true),
            ("https://ui.example.org", true),
            ("https://example.com", false),
            ("http://localhost.evil.org", false),
            ("null", false),
            ("", false),
        ] {
            assert_eq!(origin(from, Some("mill.lan:11450"), &allowed), good, "{from}");
        }
    }
}
