//! Recorded answers: `transcripts/SERVER/CASE.http`, head and body as the server sends them, without
//! the transfer coding that the head names; it is put back by [`Transcript::wire`].

use std::{fs, path::Path};

use crate::Step;

/// One answer.
#[derive(Debug, Clone)]
pub struct Transcript {
    /// The server's kind.
    pub server: String,
    /// What it shows; the first word says what it answers.
    pub case: String,
    /// First line and headers, without the empty line.
    pub head: String,
    /// The body.
    pub body: Vec<u8>,
    /// The events it becomes, one a line.
    pub events: String,
}

/// The kinds of server there are transcripts of.
pub const SERVERS: [&str; 5] = ["llama-server", "mlx", "ollama", "openai-compatible", "vllm"];

impl Transcript {
    /// Every transcript, sorted.
    ///
    /// # Panics
    /// When one is not as it should be.
    #[must_use]
    pub fn all() -> Vec<Self> {
        SERVERS.into_iter().flat_map(Self::of).collect()
    }

    /// Every transcript of a server, sorted.
    ///
    /// # Panics
    /// When one is not as it should be, or has no events beside it.
    #[must_use]
    pub fn of(server: &str) -> Vec<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("transcripts").join(server);
        let mut found: Vec<Self> = fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
            .map(|entry| entry.expect("a readable folder").path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "http"))
            .map(|path| {
                let bytes = fs::read(&path).expect("a readable file");
                let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
                let end = end.unwrap_or_else(|| panic!("{} has no head", path.display()));
                let beside = path.with_extension("events");
                Self {
                    server: server.to_owned(),
                    case: path.file_stem().expect("a name").to_string_lossy().into_owned(),
                    head: String::from_utf8(bytes[..end].to_vec()).expect("a head in ascii"),
                    body: bytes[end + 4..].to_vec(),
                    events: fs::read_to_string(&beside)
                        .unwrap_or_else(|error| panic!("{}: {error}", beside.display())),
                }
            })
            .collect();
        found.sort_by(|a, b| a.case.cmp(&b.case));
        found
    }

    /// One of them.
    ///
    /// # Panics
    /// When there is none of this name.
    #[must_use]
    pub fn named(server: &str, case: &str) -> Self {
        Self::of(server)
            .into_iter()
            .find(|transcript| transcript.case == case)
            .unwrap_or_else(|| panic!("no transcript {server}/{case}"))
    }

    /// A header's value, if the head has it.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head
            .split("\r\n")
            .skip(1)
            .filter_map(|line| line.split_once(':'))
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
    }

    /// The bytes on the wire: chunks, one a line of the body, where the head says so; a length where
    /// it is HTTP/1.1 without either.
    #[must_use]
    pub fn wire(&self) -> Vec<u8> {
        let mut wire = self.head.clone().into_bytes();
        if self.header("transfer-encoding") == Some("chunked") {
            wire.extend(b"\r\n\r\n");
            for piece in self.body.split_inclusive(|byte| *byte == b'\n') {
                wire.extend(format!("{:x}\r\n", piece.len()).bytes());
                wire.extend(piece);
                wire.extend(b"\r\n");
            }
            wire.extend(b"0\r\n\r\n");
        } else if self.closes() {
            wire.extend(b"\r\n\r\n");
            wire.extend(&self.body);
        } else {
            wire.extend(format!("\r\ncontent-length: {}\r\n\r\n", self.body.len()).bytes());
            wire.extend(&self.body);
        }
        wire
    }

    /// The answer sent at once, and the connection kept or closed as the head has it.
    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        self.ending(vec![Step::Send(self.wire())])
    }

    /// The same, byte by byte.
    #[must_use]
    pub fn trickle(&self) -> Vec<Step> {
        self.ending(vec![Step::Trickle(self.wire())])
    }

    fn ending(&self, mut steps: Vec<Step>) -> Vec<Step> {
        if self.closes() || self.header("connection") == Some("close") {
            steps.push(Step::Close);
        }
        steps
    }

    /// Whether the end of the connection is the end of the body.
    fn closes(&self) -> bool {
        self.head.starts_with("HTTP/1.0 ")
    }
}
