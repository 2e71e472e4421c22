//! A server on a real port, and an HTTP client small enough to see through.

use gristmill_api::{ServeConfig, serve};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinHandle,
};

use super::{Bench, within};

impl Bench {
    /// Serves on a free port of the loopback until dropped.
    pub async fn listen(&self, config: ServeConfig) -> Listening {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let app = self.app.clone();
        let task = tokio::spawn(async move {
            serve(listener, app, config, async move {
                let _ = stopped.await;
            })
            .await
            .unwrap();
        });
        Listening { address, stop: Some(stop), task }
    }
}

/// A server on a real port.
pub struct Listening {
    pub address: std::net::SocketAddr,
    pub stop: Option<oneshot::Sender<()>>,
    pub task: JoinHandle<()>,
}

impl Listening {
    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// A connection with this request written.
    pub async fn begin(&self, path: &str, body: &Value) -> TcpStream {
        let mut stream = self.connect().await;
        stream.write_all(&request(path, body)).await.unwrap();
        stream
    }

    /// Sends a request and reads until the server closes.
    pub async fn call(&self, path: &str, body: &Value) -> String {
        let mut stream = self.begin(path, body).await;
        let mut answer = Vec::new();
        within(stream.read_to_end(&mut answer)).await.unwrap();
        String::from_utf8(answer).unwrap()
    }
}

/// A request whose answer ends with the connection.
pub fn request(path: &str, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
