//! The choice itself. See the parent module for the order.

use std::{
    cmp::Ordering,
    collections::{HashMap, VecDeque},
};

use gristmill_core::{Error, Result};
use gristmill_kernels::ops;

use super::Settings;
use crate::{logits::Logits, random::Random};

/// Chooses tokens for one sequence.
#[derive(Debug)]
pub struct Sampler {
    settings: Settings,
    random: Random,
    recent: VecDeque<u32>,
    counts: HashMap<u32, u32>,
    candidates: Vec<Candidate>,
    best: Vec<(u32, f32)>,
    scratch: Vec<f32>,
    /// The tokens that may be chosen, and their logits.
    among: (Vec<u32>, Vec<f32>),
    peaks: Vec<f32>,
}

/// A token and its logit, later its weight.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    token: u32,
    logit: f32,
    weight: f64,
}

impl Candidate {
    fn new((token, logit): (u32, f32)) -> Self {
        Self { token, logit, weight: 0.0 }
    }

    /// Larger logit first, lower id among equals: a total order, so results never depend on how
    /// candidates were gathered.
    fn order(&self, other: &Self) -> Ordering {
        other.logit.total_cmp(&self.logit).then(self.token.cmp(&other.token))
    }
}

impl Sampler {
    /// A sampler that has seen nothing.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let seed = settings.seed.unwrap_or_else(Random::fresh_seed);
        Self {
            settings,
            random: Random::new(seed),
            recent: VecDeque::new(),
            counts: HashMap::new(),
            candidates: Vec::new(),
            best: Vec::new(),
            scratch: Vec::new(),
            among: (Vec::new(), Vec::new()),
            peaks: Vec::new(),
        }
    }

    /// Takes note of a token of the prompt or the answer.
    pub fn accept(&mut self, token: u32) {
        if !self.settings.penalises() {
            return;
        }
        self.recent.push_back(token);
        *self.counts.entry(token).or_insert(0) += 1;
        if self.recent.len() > self.settings.repeat_last_n
            && let Some(old) = self.recent.pop_front()
            && let Some(count) = self.counts.get_mut(&old)
        {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&old);
            }
        }
    }

    /// Chooses a token. `logits` are changed by bias and penalties.
    ///
    /// # Errors
    /// `non-finite` when a logit is not finite: the computation before went wrong.
    pub fn choose(&mut self, logits: &mut Logits<'_>) -> Result<u32> {
        self.adjust(logits);
        self.pick(logits)
    }

    /// Chooses among the tokens that `may` come, in ascending order, as if there were no others.
    /// The logits have been [adjusted](Self::adjust).
    ///
    /// # Errors
    /// As [`Sampler::choose`]; `internal` when none may come.
    pub fn choose_among(&mut self, logits: &[f32], may: impl Iterator<Item = u32>) -> Result<u32> {
        let (mut tokens, mut kept) = std::mem::take(&mut self.among);
        let mut peaks = std::mem::take(&mut self.peaks);
        tokens.clear();
        kept.clear();
        for token in may {
            if let Some(&logit) = logits.get(token as usize) {
                tokens.push(token);
                kept.push(logit);
            }
        }
        let chosen = if kept.is_empty() {
            Err(Error::internal("no token may come next"))
        } else {
            self.pick(&Logits::new(&mut kept, &mut peaks))
        };
        let token = chosen.and_then(|place| {
            let token = tokens.get(place as usize).copied();
            token.ok_or_else(|| Error::internal("a token was chosen that may not come"))
        });
        self.among = (tokens, kept);
        self.peaks = peaks;
        token
    }

    /// Chooses from logits that have been [adjusted](Self::adjust).
    ///
    /// # Errors
    /// As [`Sampler::choose`].
    pub fn pick(&mut self, logits: &Logits<'_>) -> Result<u32> {
        let (best, max) = logits.largest()?;
        let s = &self.settings;
        if s.temperature == 0.0 || s.top_k == 1 {
            return Ok(best);
        }
        let all = s.top_k == 0 || s.top_k >= logits.values().len();
        if all && s.typical_p >= 1.0 && s.top_p >= 1.0 && s.min_p <= 0.0 {
            return Ok(self.draw_from_all(logits.values(), best));
        }
        self.gather(logits, max, all);
        self.narrow(all);
        Ok(self.draw().unwrap_or(best))
    }

    /// Applies bias and penalties.
    pub fn adjust(&self, logits: &mut Logits<'_>) {
        let s = &self.settings;
        for &(token, bias) in &s.logit_bias {
            logits.change(token, |logit| logit + bias);
        }
        if !s.penalises() {
            return;
        }
        for (&token, &count) in &self.counts {
            logits.change(token, |logit| {
                let repeated =
                    if logit > 0.0 { logit / s.repeat_penalty } else { logit * s.repeat_penalty };
                repeated - (count as f32 * s.frequency_penalty + s.presence_penalty)
            });
        }
    }

    /// Fills `candidates` with everything the filters could keep, best first, weights relative to
    /// the whole of what the first filter sees.
    fn gather(&mut self, logits: &Logits<'_>, max: f32, all: bool) {
        let s = &self.settings;
        let values = logits.values();
        let (typical, top_p) = (f64::from(s.typical_p), f64::from(s.top_p));
        if all {
            let total = total_weight(values, max);
            if s.typical_p < 1.0 {
                let entropy = entropy(values, max, total);
                let key = |logit: f32| typicality(logit, max, total, entropy);
                within(values, max, total, key, typical, &mut self.candidates);
            } else if s.top_p < 1.0 {
                let key = |logit: f32| f64::from(max - logit);
                within(values, max, total, key, top_p, &mut self.candidates);
            } else {
                let least = max + s.min_p.ln();
                self.candidates.clear();
                self.candidates.extend(logits.at_least(least).map(Candidate::new));
            }
            for candidate in &mut self.candidates {
                candidate.weight = weight(candidate.logit, max) / total;
            }
        } else {
            logits.top_k(s.top_k, &mut self.best);
            self.candidates.clear();
            self.candidates.extend(self.best.iter().map(|&(token, logit)| Candidate {
                token,
                logit,
                weight: weight(logit, max),
            }));
            normalise(&mut self.candidates);
        }
        self.candidates.sort_unstable_by(Candidate::order);
    }

    fn narrow(&mut self, all: bool) {
        let s = &self.settings;
        let candidates = &mut self.candidates;
        if s.typical_p < 1.0 {
            // With all tokens in play the gathering has already cut the set; it is exact there,
            // because the entropy is that of the whole.
            if !all {
                let entropy: f64 = candidates
                    .iter()
                    .filter(|c| c.weight > 0.0)
                    .map(|c| -c.weight * c.weight.ln())
                    .sum();
                let key = |c: &Candidate| (-c.weight.ln() - entropy).abs();
                candidates.sort_by(|a, b| key(a).total_cmp(&key(b)).then(a.order(b)));
                keep_mass(candidates, f64::from(s.typical_p));
                candidates.sort_unstable_by(Candidate::order);
            }
            normalise(candidates);
        }
        if s.top_p < 1.0 {
            keep_mass(candidates, f64::from(s.top_p));
            normalise(candidates);
        }
        if s.min_p > 0.0
            && let Some(first) = candidates.first().copied()
        {
            let least = first.weight * f64::from(s.min_p);
            candidates.retain(|c| c.weight >= least || c.token == first.token);
        }
    }

    fn draw(&mut self) -> Option<u32> {
        let max = self.candidates.first()?.logit;
        let inverse = 1.0 / f64::from(self.settings.temperature);
        for candidate in &mut self.candidates {
            candidate.weight = (f64::from(candidate.logit - max) * inverse).exp();
        }
        let total: f64 = self.candidates.iter().map(|c| c.weight).sum();
        let mut left = self.random.unit() * total;
        for candidate in &self.candidates {
            left -= candidate.weight;
            if left < 0.0 {
                return Some(candidate.token);
            }
        }
        self.candidates.last().map(|c| c.token)
    }

    /// A draw from the whole vocabulary, without candidates: one pass for the weights, one scan.
    fn draw_from_all(&mut self, logits: &[f32], best: u32) -> u32 {
        self.scratch.clear();
        self.scratch.extend_from_slice(logits);
        ops::softmax(&mut self.scratch, 1.0 / self.settings.temperature);
        let total: f64 = self.scratch.iter().map(|p| f64::from(*p)).sum();
        let mut left = self.random.unit() * total;
        let mut last = best;
        for (token, &weight) in (0_u32..).zip(&self.scratch) {
            if weight > 0.0 {
                last = token;
                left -= f64::from(weight);
            }
            if left < 0.0 {
                break;
            }
        }
        last
    }
}

fn tokens(logits: &[f32]) -> impl Iterator<Item = Candidate> + '_ {
    (0_u32..).zip(logits.iter().copied()).map(Candidate::new)
}

fn weight(logit: f32, max: f32) -> f64 {
    f64::from((logit - max).exp())
}

fn total_weight(logits: &[f32], max: f32) -> f64 {
    f64::from(ops::log_sum_exp(logits) - max).exp()
}

fn entropy(logits: &[f32], max: f32, total: f64) -> f64 {
    let mean: f64 = logits.iter().map(|&l| weight(l, max) / total * f64::from(l - max)).sum();
    total.ln() - mean
}

fn typicality(logit: f32, max: f32, total: f64, entropy: f64) -> f64 {
    (total.ln() - f64::from(logit - max) - entropy).abs()
}

/// Gathers the tokens with the smallest keys that together hold `mass`: a threshold is doubled
/// until they do, then only those within it are ordered and cut.
fn within(
    logits: &[f32],
    max: f32,
    total: f64,
    key: impl Fn(f32) -> f64,
    mass: f64,
    out: &mut Vec<Candidate>,
) {
    let mut threshold = 4.0;
    loop {
        out.clear();
        out.extend(tokens(logits).filter(|c| key(c.logit) <= threshold));
        for candidate in out.iter_mut() {
            candidate.weight = weight(candidate.logit, max) / total;
        }
        let held: f64 = out.iter().map(|c| c.weight).sum();
        if held >= mass || out.len() == logits.len() {
            break;
        }
        threshold *= 2.0;
    }
    out.sort_unstable_by(|a, b| key(a.logit).total_cmp(&key(b.logit)).then(a.order(b)));
    keep_mass(out, mass);
}

/// Cuts after the candidate with which the sum of weights reaches `mass`; one always stays.
fn keep_mass(candidates: &mut Vec<Candidate>, mass: f64) {
    let mut sum = 0.0;
    let keep = candidates
        .iter()
        .position(|c| {
            sum += c.weight;
            sum >= mass
        })
        .map_or(candidates.len(), |last| last + 1);
    candidates.truncate(keep);
}

fn normalise(candidates: &mut [Candidate]) {
    let total: f64 = candidates.iter().map(|c| c.weight).sum();
    if total > 0.0 {
        for candidate in candidates {
            candidate.weight /= total;
        }
    }
}

/// Natural logarithms of probabilities before anything was changed: that of `token`, and of the
/// `count` likeliest tokens, best first.
#[must_use]
pub fn log_probabilities(logits: &[f32], token: u32, count: usize) -> (f32, Vec<(u32, f32)>) {
    let log_total = ops::log_sum_exp(logits);
    let mut best = Vec::new();
    ops::top_k(logits, count.min(logits.len()), &mut best);
    let own = logits.get(token as usize).map_or(f32::NEG_INFINITY, |logit| logit - log_total);
    (own, best.into_iter().map(|(token, logit)| (token, logit - log_total)).collect())
}
