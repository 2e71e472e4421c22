//! The `upstream` import: named servers. The guest's words are checked here; addresses and keys are
//! behind [`crate::services::Upstream`].

use gristmill_core::{Code, Error};
use wasmtime::{Result, component::Resource};

use super::{Answer, refuse};
use crate::{
    contract::v0_1::{bindings::gristmill::contract::upstream, convert::To},
    load::shown,
    plugin::Guest,
    services,
};

/// A response whose head has arrived.
pub struct Response(Box<dyn services::Response>);

const METHODS: &[&str] = &["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"];

/// Headers that say who asks whom, and how the message is framed: the host's.
const HOST_HEADERS: &[&str] = &[
    "host",
    "authorization",
    "proxy-authorization",
    "cookie",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "proxy-connection",
    "upgrade",
    "te",
    "trailer",
    "accept-encoding",
];

const MAX_HEADERS: usize = 64;
const MAX_PATH: usize = 4 << 10;

impl upstream::Host for Guest {
    async fn send(
        &mut self,
        grant: String,
        request: upstream::HttpRequest,
        framing: upstream::Framing,
    ) -> Answer<Resource<Response>> {
        if !self.plugin.grant.allows_upstream(&grant) {
            return refuse(
                Error::new(
                    Code::Blocked,
                    format!(
                        "the grant of {} names no upstream {:?}",
                        self.plugin.name,
                        shown(&grant)
                    ),
                )
                .with("upstream", shown(&grant)),
            );
        }
        let request = match check(request) {
            Ok(request) => request,
            Err(error) => return refuse(error),
        };
        let Some(servers) = self.plugin.services.upstream.clone() else {
            return refuse(
                Error::new(
                    Code::UpstreamUnavailable,
                    format!("no server is configured for the upstream {grant:?}"),
                )
                .with("upstream", grant),
            );
        };
        let framing = match framing {
            upstream::Framing::Raw => services::Framing::Raw,
            upstream::Framing::Lines => services::Framing::Lines,
            upstream::Framing::Sse => services::Framing::Sse,
        };
        match servers.send(&grant, request, framing).await {
            Ok(response) => Ok(Ok(self.table.push(Response(response))?)),
            Err(error) => refuse(error),
        }
    }
}

impl upstream::HostResponse for Guest {
    async fn status(&mut self, response: Resource<Response>) -> Result<u16> {
        Ok(self.table.get(&response)?.0.status())
    }

    async fn header(
        &mut self,
        response: Resource<Response>,
        name: String,
    ) -> Result<Option<String>> {
        Ok(self.table.get(&response)?.0.header(&name))
    }

    async fn next(
        &mut self,
        response: Resource<Response>,
        max_frames: u32,
        max_bytes: u32,
    ) -> Answer<Option<Vec<upstream::Frame>>> {
        if max_frames == 0 || max_bytes == 0 {
            return refuse(Error::invalid("next: expected room for at least one frame"));
        }
        let frames = self.table.get_mut(&response)?.0.next(max_frames, max_bytes).await;
        Ok(match frames {
            Ok(frames) => Ok(frames.map(|frames| {
                frames
                    .into_iter()
                    .map(|services::Frame { event, data }| upstream::Frame { event, data })
                    .collect()
            })),
            Err(error) => Err(error.to()),
        })
    }

    async fn drop(&mut self, response: Resource<Response>) -> Result<()> {
        self.table.delete(response)?;
        Ok(())
    }
}

/// Refuses what would change whom the host talks to or how the message is framed.
fn check(request: upstream::HttpRequest) -> std::result::Result<services::HttpRequest, Error> {
    let upstream::HttpRequest { method, path, headers, body } = request;
    let field = |name: &str, reason: String| Error::invalid(reason).with("field", name);
    if !METHODS.contains(&method.as_str()) {
        return Err(field("method", format!("expected one of {}", METHODS.join(", "))));
    }
    let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'\\' | b'#');
    if !path.starts_with('/')
        || path.starts_with("//")
        || path.len() > MAX_PATH
        || !path.bytes().all(plain)
        || path.split(['/', '?']).any(is_dots)
    {
        return Err(field(
            "path",
            "expected a path and query that begin with one /, in printable ascii, without dot segments"
                .to_owned(),
        ));
    }
    if headers.len() > MAX_HEADERS {
        return Err(field("headers", format!("expected at most {MAX_HEADERS}")));
    }
    for (name, value) in &headers {
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if name.is_empty() || !name.bytes().all(token) {
            return Err(field("headers", format!("{:?} is not a header name", shown(name))));
        }
        if HOST_HEADERS.iter().any(|own| name.eq_ignore_ascii_case(own)) {
            return Err(field("headers", format!("{name} is set by the host alone")));
        }
        if value.chars().any(|c| c.is_control() && c != '\t') {
            return Err(field("headers", format!("the value of {name} has control characters")));
        }
    }
    Ok(services::HttpRequest { method, path, headers, body })
}

/// `.` or `..`, however spelled.
fn is_dots(part: &str) -> bool {
    let part = part.to_ascii_lowercase().replace("%2e", ".");
    part == "." || part == ".."
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(method: &str, path: &str, header: (&str, &str)) -> Result<(), String> {
        check(upstream::HttpRequest {
            method: method.into(),
            path: path.into(),
            headers: vec![(header.0.into(), header.1.into())],
            body: Vec::new(),
        })
        .map(|_| ())
        .map_err(|error| error.detail("field").unwrap_or_default().to_owned())
    }

    #[test]
    fn what_would_reach_another_server_or_break_the_framing_is_refused() {
        let fine = ("x-a", "b");
        for path in ["/", "/v1/chat", "/api?x=1&y=%20", "/a.b/..c", "/v1?next=/a"] {
            assert_eq!(sent("POST", path, fine), Ok(()), "{path}");
        }
        for path in [
            "",
            "v1",
            "//host/x",
            "http://host/",
            "/a b",
            "/a\r\nhost: x",
            "/a\\b",
            "/é",
            "/a#b",
            "/../x",
            "/a/..",
            "/a/./b",
            "/%2e%2E/x",
            "/.%2e/x",
            "/a/..?x",
        ] {
            assert_eq!(sent("POST", path, fine), Err("path".to_owned()), "{path}");
        }
        for method in ["", "post", "CONNECT", "TRACE", "GET /"] {
            assert_eq!(sent(method, "/", fine), Err("method".to_owned()), "{method}");
        }
        for header in [
            ("", "x"),
            ("a b", "x"),
            ("a:", "x"),
            ("é", "x"),
            ("Host", "x"),
            ("AUTHORIZATION", "x"),
            ("Content-Length", "1"),
            ("Transfer-Encoding", "chunked"),
            ("cookie", "a"),
            ("x-a", "a\r\nhost: b"),
            ("x-a", "a\0"),
        ] {
            assert_eq!(sent("GET", "/", header), Err("headers".to_owned()), "{header:?}");
        }
    }
}
