//! One exchange with the server behind the bridge. The import is behind a trait, so that tests play
//! the server's part on any machine.
//!
//! Bounds: a body that is read whole has at most [`MOST_BODY`] bytes.

use gristmill_plugin::{
    prelude::*,
    upstream::{self, Frame, Framing, HttpRequest},
};
use serde::de::DeserializeOwned;

use crate::{Fields, failure};

/// The name by which every bridge's grant knows its server.
pub const UPSTREAM: &str = "primary";

/// The largest body that is read whole: a thousand vectors of a thousand numbers as JSON.
pub const MOST_BODY: usize = 16 << 20;

/// Frames and bytes of one read.
pub(crate) const FRAMES: u32 = 64;
pub(crate) const BYTES: u32 = 1 << 20;

/// Where requests go.
pub trait Server {
    /// Sends, and waits for the response's head.
    ///
    /// # Errors
    /// What the `upstream` import fails with.
    fn send(&self, request: &HttpRequest, framing: Framing) -> Result<Box<dyn Reply>>;
}

/// A response whose head has arrived. Dropping it closes it.
pub trait Reply {
    /// The status code.
    fn status(&self) -> u16;
    /// The first header of this name.
    fn header(&self, name: &str) -> Option<String>;
    /// At least one frame; none: the body has ended.
    ///
    /// # Errors
    /// What the `upstream` import fails with.
    fn next(&mut self, frames: u32, bytes: u32) -> Result<Option<Vec<Frame>>>;
}

/// The upstream that the grant calls [`UPSTREAM`]. Only a component has it.
#[derive(Debug, Clone, Copy)]
pub struct Primary;

impl Server for Primary {
    fn send(&self, request: &HttpRequest, framing: Framing) -> Result<Box<dyn Reply>> {
        Ok(Box::new(upstream::send(UPSTREAM, request, framing)?))
    }
}

impl Reply for upstream::Response {
    fn status(&self) -> u16 {
        Self::status(self)
    }

    fn header(&self, name: &str) -> Option<String> {
        Self::header(self, name)
    }

    fn next(&mut self, frames: u32, bytes: u32) -> Result<Option<Vec<Frame>>> {
        Self::next(self, frames, bytes)
    }
}

/// A request without a body.
#[must_use]
pub fn get(path: &str) -> HttpRequest {
    HttpRequest {
        method: "GET".to_owned(),
        path: path.to_owned(),
        headers: Vec::new(),
        body: Vec::new(),
    }
}

/// A JSON object, posted.
#[must_use]
pub fn post(path: &str, body: Fields) -> HttpRequest {
    HttpRequest {
        method: "POST".to_owned(),
        path: path.to_owned(),
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body: body.into_json().into_bytes(),
    }
}

/// Sends, reads the whole body, and turns a status that is no success into the error it means.
///
/// # Errors
/// The import's, the server's ([`failure::of`]), `upstream-error` for a body that is too large.
pub fn exchange(
    server: &dyn Server,
    manners: &failure::Manners,
    request: &HttpRequest,
) -> Result<Vec<u8>> {
    let mut reply = server.send(request, Framing::Raw).map_err(|error| manners.during(error))?;
    let body = whole(reply.as_mut(), manners)?;
    if reply.status() != 200 {
        return Err(manners.of(reply.as_ref(), &body));
    }
    Ok(body)
}

/// [`exchange`], and the body as JSON of this shape.
///
/// # Errors
/// Also `upstream-error` for a body of another shape; an error object in a success counts as one.
pub fn ask<T: DeserializeOwned>(
    server: &dyn Server,
    manners: &failure::Manners,
    request: &HttpRequest,
) -> Result<T> {
    let body = exchange(server, manners, request)?;
    if let Some(error) = manners.inside(&body) {
        return Err(error);
    }
    serde_json::from_slice(&body).map_err(|error| {
        let what = format!("{} answered {} with another shape", manners.backend, request.path);
        manners.nonsense(&format!("{what} ({error})"), &body)
    })
}

/// The whole body, whatever it was cut into.
///
/// # Errors
/// The import's; `upstream-error` for more than [`MOST_BODY`].
pub fn whole(reply: &mut dyn Reply, manners: &failure::Manners) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    while let Some(frames) = reply.next(FRAMES, BYTES).map_err(|error| manners.during(error))? {
        for frame in frames {
            body.extend_from_slice(&frame.data);
        }
        if body.len() > MOST_BODY {
            let backend = manners.backend;
            return Err(manners.named(Error::upstream(format!(
                "{backend} answered with more than {MOST_BODY} bytes"
            ))));
        }
    }
    Ok(body)
}
