//! Guesses at what comes next, without a second model: what followed the last time the same three
//! tokens stood together. A guess is computed in the same pass as the token before it, in a small
//! batch that reads the weights once, and every token is still chosen from its own logits in
//! order. So an answer is the one plain decoding gives, token for token; only its pace differs.
//!
//! Bounds: [`MOST`] guesses a pass; one place per token of context. Guessing stops while it does
//! not pay: [`Pace`] compares measured times.

use std::collections::HashMap;

/// Guesses in one pass: with the token before them the widest batch of the small-batch kernels.
pub const MOST: usize = 7;

/// Tokens that must agree before what followed them is taken for a guess.
const MATCH: usize = 3;

/// Where each run of [`MATCH`] tokens was last followed by another.
#[derive(Debug, Default)]
pub struct Lookup {
    history: Vec<u32>,
    places: HashMap<[u32; MATCH], usize>,
}

impl Lookup {
    /// Over a context that is there already.
    pub fn of<'a>(context: impl Iterator<Item = &'a u32>) -> Self {
        let mut lookup = Self::default();
        context.for_each(|&token| lookup.push(token));
        lookup
    }

    /// Takes note of the next token of the context.
    pub fn push(&mut self, token: u32) {
        if let Some(last) = self.history.last_chunk::<MATCH>() {
            self.places.insert(*last, self.history.len());
        }
        self.history.push(token);
    }

    /// Adds at most `most` tokens that may come next to `out`, which ends with the last one; none if
    /// the last ones have not been seen before.
    pub fn guess(&self, most: usize, out: &mut Vec<u32>) {
        let known = out.len();
        let last = self.history.last_chunk::<MATCH>();
        let Some(&place) = last.and_then(|last| self.places.get(last)) else { return };
        for n in place..place + most {
            // A repetition shorter than the guess goes on into the guess itself.
            let guessed = n.checked_sub(self.history.len()).and_then(|n| out.get(known + n));
            let Some(&token) = self.history.get(n).or(guessed) else { return };
            out.push(token);
        }
    }
}

/// Weight of a new measurement in an average.
const NEW: f64 = 0.125;
/// Tokens per time, relative to plain decoding, from which guessing is worth it, and below which
/// it stops: apart, so that it does not flutter.
const WORTH: f64 = 1.10;
const STILL_WORTH: f64 = 1.02;
/// Plain passes after a stop before it is tried again; doubles each time up to the second.
const REST: u32 = 16;
const LONGEST_REST: u32 = 512;
/// Share of the time of a plain pass that a further row is taken to cost until it is measured:
/// 0.06 to 0.15 for 4-bit weights from memory.
const ROW: f64 = 0.1;

/// Passes with guesses after which a plain one is measured again.
const STALE: u32 = 128;

/// Times of passes of one sequence, by rows.
#[derive(Debug, Default)]
pub struct Costs {
    times: [Option<f64>; MOST + 1],
    /// Passes since the last plain one.
    since: u32,
}

impl Costs {
    /// A pass of `rows` rows took this long.
    pub fn record(&mut self, rows: usize, seconds: f64) {
        self.since = if rows == 1 { 0 } else { self.since + 1 };
        if let Some(slot) = rows.checked_sub(1).and_then(|place| self.times.get_mut(place)) {
            // One interrupted pass must not count for many.
            *slot = Some(slot.map_or(seconds, |old| old + (seconds.min(old * 3.0) - old) * NEW));
        }
    }

    /// Time of a pass with `guesses` guesses, in plain passes. None when it is time for a plain one.
    fn relative(&self, guesses: usize) -> Option<f64> {
        let plain = self.times.first().copied().flatten().filter(|_| self.since < STALE)?;
        let known = self.times.iter().enumerate().take(guesses + 1).rev();
        let (nearest, time) = known.filter_map(|(n, time)| Some((n, (*time)?))).next()?;
        Some(time / plain.max(1e-9) + ROW * (guesses - nearest) as f64)
    }
}

/// How many guesses one answer takes at a time, and whether any.
#[derive(Debug)]
pub struct Pace {
    /// How often a guess turned out right, of those whose predecessors did.
    rate: f64,
    on: bool,
    rest: u32,
    next_rest: u32,
    /// Guesses made.
    pub drafted: u64,
    /// Guesses that were right.
    pub accepted: u64,
}

impl Default for Pace {
    fn default() -> Self {
        // Hopeful: a match of three tokens is followed by the same one more often than not.
        Self { rate: 0.7, on: true, rest: 0, next_rest: REST, drafted: 0, accepted: 0 }
    }
}

impl Pace {
    /// Guesses to try now, of `most`.
    pub fn depth(&mut self, costs: &Costs, most: usize) -> usize {
        if self.rest > 0 {
            self.rest -= 1;
            return 0;
        }
        let (mut best, mut depth, mut tokens, mut chance) = (0.0, 0, 1.0, 1.0);
        for guesses in 1..=most.min(MOST) {
            chance *= self.rate;
            tokens += chance;
            let Some(relative) = costs.relative(guesses) else { return 0 };
            let worth = tokens / relative;
            if worth > best {
                (best, depth) = (worth, guesses);
            }
        }
        if best >= if self.on { STILL_WORTH } else { WORTH } {
            self.on = true;
            return depth;
        }
        if most == 0 {
            return 0;
        }
        let tried = !self.on;
        self.on = false;
        self.rest = self.next_rest;
        self.next_rest = (self.next_rest * 2).min(LONGEST_REST);
        // A short guess after a rest shows whether the text has become guessable.
        if tried { 2.min(most) } else { 0 }
    }

    /// Of `drafted` guesses the first `accepted` were right.
    pub fn record(&mut self, drafted: usize, accepted: usize) {
        self.drafted += drafted as u64;
        self.accepted += accepted as u64;
        for n in 0..drafted.min(accepted + 1) {
            self.rate += (f64::from(u8::from(n < accepted)) - self.rate) * NEW;
        }
        // Right again: look soon. That rows cost too much is another matter, and stays.
        if drafted > 0 && accepted == drafted && self.rate < 0.5 {
            self.next_rest = REST;
            self.rest = self.rest.min(REST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guess(history: &[u32], most: usize) -> Vec<u32> {
        let mut out = vec![9; 3];
        Lookup::of(history.iter()).guess(most, &mut out);
        out.split_off(3)
    }

    #[test]
    fn a_guess_is_what_followed_the_last_time() {
        assert_eq!(guess(&[1, 2, 3, 4, 5, 1, 2, 3], 2), [4, 5]);
        assert_eq!(guess(&[1, 2, 3, 4, 1, 2, 3, 7, 1, 2, 3], 1), [7], "the latest counts");
        assert_eq!(guess(&[1, 2, 3, 4, 5, 6, 2, 3], 2), [0; 0], "three must agree");
        assert_eq!(guess(&[1, 2], 4), [0; 0]);
        assert_eq!(guess(&[1, 2, 1, 2, 1, 2], 5), [1, 2, 1, 2, 1], "a repetition goes on");
        assert_eq!(guess(&[8, 8, 8, 8], 3), [8, 8, 8]);
    }

    /// Plain passes of `plain` seconds, others of `row` more per guess; guesses right as `right`
    /// says. The share of passes that guessed, in the last half.
    fn share(row: f64, right: impl Fn(u64) -> bool) -> f64 {
        let (mut costs, mut pace) = (Costs::default(), Pace::default());
        let (mut guessing, mut all, mut nth) = (0, 0, 0);
        for pass in 0..4000 {
            let depth = pace.depth(&costs, MOST);
            costs.record(depth + 1, 0.01 * (1.0 + row * depth as f64));
            let mut accepted = 0;
            while accepted < depth && right(nth) {
                accepted += 1;
                nth += 1;
            }
            nth += 1;
            pace.record(depth, accepted);
            if pass >= 2000 {
                all += 1;
                guessing += u32::from(depth > 0);
            }
        }
        f64::from(guessing) / f64::from(all)
    }

    #[test]
    fn guessing_goes_on_while_it_pays_and_stops_when_it_does_not() {
        assert!(share(0.1, |_| true) > 0.99);
        assert!(share(0.1, |n| n % 3 != 0) > 0.9);
        assert!(share(0.1, |_| false) < 0.01, "text that cannot be guessed");
        assert!(share(1.0, |n| n % 4 != 0) < 0.01, "rows that cost as much as passes");
    }

    #[test]
    fn text_that_becomes_guessable_is_guessed_again() {
        let (mut costs, mut pace) = (Costs::default(), Pace::default());
        let mut run = |passes: usize, right: bool| {
            let mut drafted = 0;
            for _ in 0..passes {
                let depth = pace.depth(&costs, MOST);
                costs.record(depth + 1, 0.01 * (1.0 + 0.1 * depth as f64));
                pace.record(depth, if right { depth } else { 0 });
                drafted += depth;
            }
            drafted
        };
        run(3000, false);
        assert!(run(1200, true) > 1000);
    }
}
