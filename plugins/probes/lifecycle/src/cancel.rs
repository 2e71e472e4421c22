//! Cancelling is dropping an answer: in the queue, while the prompt is read, while text is written.
//! What was dropped must let go of its place: the next request is served, soon.

use core::time::Duration;

use gristmill_plugin::{prelude::*, probe::serving};
use probe_kit::{
    Bench, Stop, Verdict,
    ask::{Answer, ask},
    failed, not_applicable,
};

/// Beyond four times what a short request takes alone, this much is allowed for a busy machine.
/// A back-end that does not cancel works off what was dropped, which takes far longer, or for ever.
const ALLOWANCE: Duration = Duration::from_secs(10);

/// How long a short request takes.
fn alone(bench: &Bench) -> Result<Duration, Stop> {
    ask(&bench.request("Hello.", 2))?;
    let begun = bench.elapsed();
    ask(&bench.request("Hello.", 2))?;
    Ok(bench.elapsed() - begun)
}

/// A short request after whatever was dropped.
fn served(bench: &Bench, alone: Duration) -> Verdict {
    let begun = bench.elapsed();
    let answer = match ask(&bench.request("Hello.", 2)) {
        Err(error) => {
            let seen = format!("{}: {}", error.code, error.message);
            return failed("the request after what was cancelled is not served", seen);
        }
        Ok(answer) => answer,
    };
    let took = bench.elapsed() - begun;
    let seen = format!("{} ms after, {} ms alone", took.as_millis(), alone.as_millis());
    if took > alone * 4 + ALLOWANCE {
        return failed("what was cancelled is still in the way", seen);
    }
    if answer.finish.is_empty() {
        return failed("an answer without an end", seen);
    }
    Ok(seen)
}

fn long(bench: &Bench) -> Request {
    bench.request("Write a very long story about a river, and never stop.", 4096.min(room(bench)))
}

/// Tokens that surely fit beside a short prompt.
fn room(bench: &Bench) -> u32 {
    bench.context().map_or(4096, |context| context / 2).max(8)
}

/// More answers than run at once, none of them fetched, and a short one behind them; all but that are
/// dropped, and it comes. Whether the ones before it ran or waited is not seen.
pub(crate) fn queue(bench: &Bench) -> Verdict {
    let alone = alone(bench)?;
    let mut started = Vec::new();
    let mut refused = 0;
    for _ in 0..8 {
        match serving::generate(&long(bench)) {
            Ok(answer) => started.push(answer),
            Err(error) if error.code == "busy" => refused += 1,
            Err(error) => return Err(error.into()),
        }
    }
    let count = started.len();
    if count == 0 {
        return not_applicable("every answer was refused as busy, so none was dropped");
    }
    let behind = match serving::generate(&bench.request("Hello.", 2)) {
        Err(error) if error.code == "busy" => None,
        other => Some(other?),
    };
    let begun = bench.elapsed();
    drop(started);
    if let Some(running) = behind {
        let mut answer = Answer::default();
        while let Some(events) = running.next(256)? {
            events.into_iter().for_each(|event| answer.add(event));
        }
        let took = bench.elapsed() - begun;
        let seen = format!("{} ms, {} ms alone", took.as_millis(), alone.as_millis());
        if answer.finish.is_empty() {
            return failed("the answer behind what was cancelled has no end", seen);
        }
        if took > alone * 4 + ALLOWANCE {
            return failed("the answer behind what was cancelled waited for it", seen);
        }
    }
    let seen = served(bench, alone)?;
    Ok(format!("{count} dropped, {refused} refused as busy; {seen}"))
}

/// A long prompt, dropped before anything of its answer was fetched.
pub(crate) fn prefill(bench: &Bench) -> Verdict {
    let alone = alone(bench)?;
    let mut words = room(bench).min(3000) as usize / 4;
    let answer = loop {
        let prompt = "river stone ".repeat(words);
        match serving::generate(&bench.request(&prompt, 16)) {
            // Some models need many tokens for a word.
            Err(error) if error.code == "context-overflow" && words > 1 => words /= 2,
            other => break other?,
        }
    };
    drop(answer);
    let seen = served(bench, alone)?;
    Ok(format!("a prompt of {} words dropped; {seen}", words * 2))
}

/// What comes after all content.
fn ends(event: &Event) -> bool {
    matches!(event, Event::Usage(_) | Event::Timings(_) | Event::Finish(_))
}

/// A few events, then dropped; several times, so that a place lost each time would show.
pub(crate) fn decode(bench: &Bench) -> Verdict {
    let alone = alone(bench)?;
    let (mut fetched, mut cut) = (0, 0);
    for _ in 0..6 {
        let answer = serving::generate(&long(bench))?;
        let mut over = false;
        for _ in 0..2 {
            match answer.next(1)? {
                Some(events) if !over => {
                    fetched += events.len();
                    over = events.iter().any(ends);
                }
                _ => over = true,
            }
            if over {
                break;
            }
        }
        cut += u32::from(!over);
        drop(answer);
    }
    if cut == 0 {
        return not_applicable("each answer was over before it could be dropped");
    }
    let seen = served(bench, alone)?;
    Ok(format!("{cut} of 6 dropped after {fetched} events; {seen}"))
}
