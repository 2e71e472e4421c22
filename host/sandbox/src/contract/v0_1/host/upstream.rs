//! The `upstream` import: named servers. The guest's words are checked against its grant before they
//! go on; addresses and keys are behind [`crate::services::Upstream`].

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

impl upstream::Host for Guest {
    async fn send(
        &mut self,
        grant: String,
        request: upstream::HttpRequest,
        framing: upstream::Framing,
    ) -> Answer<Resource<Response>> {
        let Some(granted) = self.plugin.grant.upstream(&grant) else {
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
        };
        let upstream::HttpRequest { method, path, headers, body } = request;
        let request = services::HttpRequest { method, path, headers, body };
        if let Err(error) = request.check(granted) {
            return refuse(error.with("upstream", grant));
        }
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
