//! Progress bars for pulls and imports, on a terminal; plain lines elsewhere.

use std::{io::IsTerminal, ops::ControlFlow};

use gristmill_models::store::{Progress, Stage, Update};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Draws one bar per file.
pub(crate) struct Bars {
    bar: ProgressBar,
    stage: Option<Stage>,
    what: String,
    terminal: bool,
}

impl Bars {
    /// Nothing is drawn until the first report.
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let terminal = std::io::stderr().is_terminal();
        Self { bar, stage: None, what: String::new(), terminal }
    }

    fn begin(&mut self, update: &Update<'_>) {
        self.bar.finish_and_clear();
        self.stage = Some(update.stage);
        self.what = update.what.to_owned();
        if !self.terminal {
            eprintln!("{} {}", update.stage.status(), update.what);
            return;
        }
        self.bar = match update.total {
            Some(total) => ProgressBar::new(total),
            None => ProgressBar::new_spinner(),
        };
        let shape = match update.total {
            Some(_) => "{msg}\n  {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
            None => "{msg} {bytes}",
        };
        if let Ok(style) = ProgressStyle::with_template(shape) {
            self.bar.set_style(style);
        }
        self.bar.set_message(format!("{} {}", update.stage.status(), update.what));
    }
}

impl Progress for Bars {
    fn update(&mut self, update: &Update<'_>) -> ControlFlow<()> {
        if self.stage != Some(update.stage) || self.what != update.what {
            self.begin(update);
        }
        self.bar.set_position(update.completed);
        ControlFlow::Continue(())
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
