//! A running answer: frames in, events out. What came before a failure is delivered before it, and
//! an answer is never ended by anything but its own end.

use gristmill_plugin::{
    prelude::*,
    upstream::{Frame, Framing, HttpRequest},
};

use crate::{
    Reply, Server,
    answer::{Answer, Rules},
    http::{BYTES, FRAMES, whole},
};

/// A server's stream format.
pub trait Decoder: 'static {
    /// One frame.
    ///
    /// # Errors
    /// What the frame says, or that it says nothing sensible.
    fn frame(&mut self, frame: &Frame, answer: &mut Answer) -> Result<()>;

    /// The body has ended without [`Answer::complete`].
    ///
    /// # Errors
    /// Unless that is an end.
    fn end(&mut self, answer: &mut Answer) -> Result<()>;

    /// A success that is no stream, as a whole body.
    ///
    /// # Errors
    /// Unless it is an answer.
    fn body(&mut self, body: &[u8], answer: &mut Answer) -> Result<()>;
}

/// The answer.
pub struct Stream<D> {
    reply: Option<Box<dyn Reply>>,
    decoder: D,
    answer: Answer,
    failed: Option<Error>,
}

impl<D: Decoder> Stream<D> {
    /// Sends, and waits for the first event: a failure that comes before it is still one with a
    /// status.
    ///
    /// # Errors
    /// The import's, the server's, and what the first frames say.
    pub fn start(
        server: &dyn Server,
        request: &HttpRequest,
        framing: Framing,
        rules: Rules,
        decoder: D,
    ) -> Result<Self> {
        let manners = rules.manners;
        let mut reply = server.send(request, framing).map_err(|error| manners.during(error))?;
        if reply.status() != 200 {
            let body = whole(reply.as_mut(), &manners)?;
            return Err(manners.of(reply.as_ref(), &body));
        }
        let streamed = framing != Framing::Sse
            || reply
                .header("content-type")
                .is_none_or(|kind| kind.to_ascii_lowercase().contains("event-stream"));
        let mut stream =
            Self { reply: Some(reply), decoder, answer: Answer::new(rules), failed: None };
        if streamed {
            while !stream.answer.has_events() && stream.failed.is_none() && stream.reply.is_some() {
                stream.read();
            }
        } else if let Some(mut reply) = stream.reply.take() {
            let body = whole(reply.as_mut(), &manners)?;
            stream.decoder.body(&body, &mut stream.answer)?;
        }
        match stream.failed.take_if(|_| !stream.answer.has_events()) {
            Some(error) => Err(error),
            None => Ok(stream),
        }
    }

    fn read(&mut self) {
        let Some(reply) = &mut self.reply else { return };
        let result = match reply.next(FRAMES, BYTES) {
            Ok(Some(frames)) => self.decode(&frames),
            Ok(None) => {
                self.reply = None;
                self.decoder.end(&mut self.answer)
            }
            Err(error) => Err(self.answer.manners().during(error)),
        };
        if let Err(error) = result {
            self.failed = Some(error);
            self.reply = None;
        }
    }

    fn decode(&mut self, frames: &[Frame]) -> Result<()> {
        for frame in frames {
            self.decoder.frame(frame, &mut self.answer)?;
            if self.answer.is_over() {
                self.reply = None;
                break;
            }
        }
        Ok(())
    }
}

impl<D: Decoder> Generation for Stream<D> {
    fn next(&mut self, max: u32) -> Result<Option<Vec<Event>>> {
        loop {
            if self.answer.has_events() {
                return Ok(Some(self.answer.take(max)));
            }
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            if self.reply.is_none() {
                return Ok(None);
            }
            self.read();
        }
    }
}
