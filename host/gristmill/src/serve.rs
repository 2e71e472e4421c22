//! `gristmill serve`: the composed rooms behind HTTP, until a signal.

use std::{io::IsTerminal, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use gristmill_api::{
    ApiConfig, AppState, ServeConfig, app, check_bind,
    keys::{KeyFile, KeyRing},
};
use gristmill_ledger::log::Chain;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

use crate::{
    compose::{Places, compose, runtime},
    control::HostControl,
    promote::Promoter,
    settings::Settings,
    watch::{Seen, watch},
};

/// Serves until SIGINT or SIGTERM, then lets running answers finish.
pub(crate) fn serve(settings: &Settings, places: &Places) -> Result<()> {
    start_logging(settings)?;
    runtime()?.block_on(async {
        let listen = settings.text("server.listen").unwrap_or_default();
        let address: SocketAddr = listen
            .parse()
            .with_context(|| format!("server.listen: expected ADDRESS:PORT, found {listen:?}"))?;
        let file = places.keys.clone().map(KeyFile::new);
        let keys = Arc::new(KeyRing::open(&settings.list("server.tokens"), file)?);
        check_bind(address, &keys)?;
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("cannot listen on {address}"))?;
        let address = listener.local_addr()?;

        let seen = Seen::now(places);
        let composed = compose(settings, places).await?;
        let body_limit = settings.count("server.max_body_mib").unwrap_or(128) << 20;
        let config = ApiConfig {
            keys,
            mutation: settings.flag("server.model_changes"),
            body_limit: usize::try_from(body_limit).unwrap_or(usize::MAX),
            origins: settings.list("server.origins"),
            hosts: settings.list("server.hosts"),
            loopback: address.ip().to_canonical().is_loopback(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..ApiConfig::default()
        };
        let drain = settings.count("server.drain_seconds").unwrap_or(30);
        let times =
            ServeConfig { drain_timeout: Duration::from_secs(drain), ..ServeConfig::default() };
        let router = Arc::clone(&composed.router);
        let promoter = Arc::new(Promoter::new(places, composed));
        promoter.quarantine.obey(&router, &Chain::open(&places.ledger)?);
        watch(&promoter, seen)?;
        let control = Arc::new(HostControl::new(settings, promoter));
        let app = app(AppState::with_control(config, router, control));
        tracing::info!("listening on http://{address}");
        gristmill_api::serve(listener, app, times, stopped()?).await?;
        tracing::info!("stopped");
        Ok(())
    })
}

/// Done at the first signal to stop.
fn stopped() -> Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        tracing::info!("stopping; running answers may finish");
    })
}

fn start_logging(settings: &Settings) -> Result<()> {
    let filter = settings.text("log.filter").unwrap_or("info");
    let filter = tracing_subscriber::EnvFilter::try_new(filter)
        .with_context(|| format!("log.filter: {filter:?} is not a filter"))?;
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        // A line that cannot be written is lost; to say so where it could not be written would be a panic.
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    match settings.text("log.format") {
        Some("json") => logs.json().init(),
        Some("human") => logs.with_target(false).init(),
        other => bail!("log.format: expected human or json, found {other:?}"),
    }
    Ok(())
}
