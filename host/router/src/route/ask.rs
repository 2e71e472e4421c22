//! What is asked of a plan: answers, vectors, ranks, tokens.
//!
//! The order is always the same: what is known against the plan, the model's lease, the place in the
//! queue, then the generation that answers. So a request that waits through a swap is asked of what
//! answers when its place comes: it has not begun on anything, the old generation drains sooner, and
//! the drain deadline never meets a request that still waits. Where the new generation does not have
//! the model, the plan's own answers as long as it may.

use std::sync::Arc;

use gristmill_core::{
    Code, Error, Result,
    request::{EmbedRequest, Embeddings, Ranked, Request, RerankRequest},
};
use gristmill_policies::Judgement;
use gristmill_sandbox::backend::{Backend, Generation as Running};

use super::{Answer, Plan, Provenance, Router, answer::Held, called, plan::capabilities};
use crate::{
    blocks,
    keep::{KeepAlive, Lease},
    live::Source,
    name, policy,
    swap::{
        guard::blames,
        life::drained,
        shadow::{self, Tap},
    },
    turn::Turn,
};

/// An outcome, and whose it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Answered<T> {
    /// What was asked for.
    pub what: T,
    /// Who answered.
    pub by: Provenance,
}

/// A request whose place has come.
struct Ready {
    plan: Plan,
    turn: Turn,
    held: Held,
}

impl Router {
    /// Starts an answer. What a candidate on trial cannot begin to answer, or may not, is answered by
    /// what is live, as if it had come there.
    ///
    /// # Errors
    /// As [`Plan::check`]; `blocked`, by a block or a parameter policy; `busy`; `drained` for a settled plan whose generation's time is
    /// over; the back-end's own error.
    pub async fn generate(
        &self,
        plan: &Plan,
        request: Request,
        keep: Option<KeepAlive>,
    ) -> Result<Answer> {
        plan.check(&request)?;
        let needs = capabilities(&request);
        let check = |plan: &Plan| plan.check(&request);
        let Ready { mut plan, mut turn, held } =
            self.ready(plan, Some(&request.id), &needs, keep, check).await?;
        let on_trial = plan.slot.lineup().candidate(turn.generation()).is_some();
        // As it came: policies speak of versions, and what is live has its own.
        let spare = on_trial.then(|| request.clone());
        let mut started = self.start(&plan, &mut turn, request).await;
        if let Some(request) = spare
            && started.as_ref().err().is_some_and(steps_aside)
            && let Ok(Some(live)) = self.instead(&plan, &needs, |plan| plan.check(&request)).await
        {
            plan = live;
            turn = self.begins(&plan);
            started = self.start(&plan, &mut turn, request).await;
        }
        let (running, tap, judgement) = started.map_err(|error| plan.provenance().naming(error))?;
        Ok(Answer::new(running, turn, held, tap, plan, judgement))
    }

    /// Judges a request for who answers, and begins; a candidate in the shadow gets its copy.
    async fn start(
        &self,
        plan: &Plan,
        turn: &mut Turn,
        mut request: Request,
    ) -> Result<(Box<dyn Running>, Option<Tap>, Judgement)> {
        let judgement = self.policy.apply(&plan.generation, &plan.info, &mut request).await?;
        request.model.clone_from(&plan.info.id);
        let place = shadow::place(&plan.slot, &request.id);
        let copy = place.map(|place| (place, request.clone()));
        let backend = Arc::clone(&plan.generation.backend);
        let running = turn.wait(backend.generate(request)).await?;
        let tap = copy.map(|(place, request)| {
            let lease = self.lease(plan, None);
            shadow::run(&self.backends, &plan.slot, place, request, lease)
        });
        Ok((running, tap, judgement))
    }

    /// One vector per text.
    ///
    /// # Errors
    /// `blocked`; `busy`; the back-end's own error; `upstream-error` when the numbers are not what
    /// was asked.
    pub async fn embed(
        &self,
        plan: &Plan,
        mut request: EmbedRequest,
        keep: Option<KeepAlive>,
    ) -> Result<Answered<Embeddings>> {
        let check = |plan: &Plan| plan.uncontradicted("embeddings");
        let ready = self.ready(plan, None, &["embeddings"], keep, check).await?;
        request.model.clone_from(&ready.plan.info.id);
        ready.whole(|backend| async move { backend.embed(request).await }).await
    }

    /// Documents by relevance, best first.
    ///
    /// # Errors
    /// As [`Plan::check`]; `blocked`; `busy`; the back-end's own error.
    pub async fn rerank(
        &self,
        plan: &Plan,
        mut request: RerankRequest,
    ) -> Result<Answered<Vec<Ranked>>> {
        let check = |plan: &Plan| plan.offers("reranking", "reranking");
        let ready = self.ready(plan, None, &["reranking"], None, check).await?;
        request.model.clone_from(&ready.plan.info.id);
        ready.whole(|backend| async move { backend.rerank(request).await }).await
    }

    /// Tokens of a text. `special`: spellings of special tokens become those tokens. Does not wait
    /// in the queue: nothing is computed.
    ///
    /// # Errors
    /// The back-end's own error.
    pub async fn tokenize(&self, plan: &Plan, text: &str, special: bool) -> Result<Vec<u32>> {
        let _lease = self.lease(plan, None);
        let tokens = plan.generation.backend.tokenize(&plan.info.id, text, special).await;
        tokens.map_err(|error| self.noted(plan, error))
    }

    /// The bytes that tokens stand for. Does not wait in the queue either.
    ///
    /// # Errors
    /// The back-end's own error.
    pub async fn detokenize(&self, plan: &Plan, tokens: &[u32]) -> Result<Vec<u8>> {
        let _lease = self.lease(plan, None);
        let bytes = plan.generation.backend.detokenize(&plan.info.id, tokens).await;
        bytes.map_err(|error| self.noted(plan, error))
    }

    /// What the model would read for this request: tokens, and the text they stand for. Nothing is
    /// generated.
    ///
    /// # Errors
    /// As [`Plan::check`]; `unsupported` for a model of a bridge, whose server keeps this to itself;
    /// the engine's own error.
    pub async fn prompt(&self, plan: &Plan, mut request: Request) -> Result<(Vec<u32>, String)> {
        plan.check(&request)?;
        policy::clean(&mut request);
        request.model.clone_from(&plan.info.id);
        let Some(_lease) = self.lease(plan, None) else {
            return Err(Error::unsupported(format!(
                "the back-end \"{}\" does not say what \"{}\" reads: it tells neither the rendered prompt nor its tokens",
                plan.slot.name, plan.info.id
            ))
            .with("field", "model"));
        };
        self.residency.prompt(request).await
    }

    /// Brings a stored model into memory; a model of a bridge is its server's to load.
    ///
    /// # Errors
    /// As [`Residency::load`].
    pub async fn load(&self, plan: &Plan, keep: Option<KeepAlive>) -> Result<()> {
        let Some(_lease) = self.lease(plan, keep) else { return Ok(()) };
        self.residency.load(&plan.info.id).await
    }

    /// Lets go of a stored model now. Whether it was loaded.
    pub async fn unload(&self, plan: &Plan) -> bool {
        match plan.slot.source {
            Source::Store => self.keeper.unload(&plan.info.id).await,
            Source::Listed => false,
        }
    }

    fn lease(&self, plan: &Plan, keep: Option<KeepAlive>) -> Option<Lease> {
        (plan.slot.source == Source::Store)
            .then(|| self.keeper.begin(&plan.info.id, keep, plan.keep))
    }

    /// Takes note of a failure of a call that has no turn of its own, and names whose it is.
    fn noted(&self, plan: &Plan, error: Error) -> Error {
        self.backends.fault(&plan.generation.digest, &error);
        plan.provenance().naming(error)
    }

    /// Brings a request to its turn; `check` is what the plan, whichever it will be, must offer.
    async fn ready(
        &self,
        plan: &Plan,
        key: Option<&str>,
        needs: &[&str],
        keep: Option<KeepAlive>,
        check: impl Fn(&Plan) -> Result<()>,
    ) -> Result<Ready> {
        let other = self.unblocked(plan, needs).await?;
        let plan = other.as_ref().unwrap_or(plan);
        check(plan)?;
        let lease = self.lease(plan, keep);
        let permit = plan.slot.queue(&plan.info.id).admit().await?;
        let held = Held { permit, _lease: lease };
        let (mut settled, mut turn) = self.turn(plan, key).await?;
        if !Arc::ptr_eq(&settled.generation, &plan.generation)
            && let Err(refusal) = self.admits(&settled, needs, &check).await
        {
            settled = self.instead(&settled, needs, check).await?.ok_or(refusal)?;
            turn = self.begins(&settled);
        }
        Ok(Ready { plan: settled, turn, held })
    }

    /// Whether a plan offers what is needed, and no block forbids it.
    pub(super) async fn admits(
        &self,
        plan: &Plan,
        needs: &[&str],
        check: impl Fn(&Plan) -> Result<()>,
    ) -> Result<()> {
        check(plan)?;
        match self.hit(&plan.generation, &plan.info, needs).await {
            Some(block) => Err(blocks::refusal(&block, &plan.slot.name, &plan.info.id)),
            None => Ok(()),
        }
    }

    /// The plan on what is live, where that is another generation and has the model.
    async fn instead(
        &self,
        plan: &Plan,
        needs: &[&str],
        check: impl Fn(&Plan) -> Result<()>,
    ) -> Result<Option<Plan>> {
        let live = plan.slot.current();
        if Arc::ptr_eq(&live, &plan.generation) {
            return Ok(None);
        }
        let Some(live) = self.again(plan, live).await? else { return Ok(None) };
        self.admits(&live, needs, check).await?;
        Ok(Some(live))
    }

    /// The generation that answers, now that the place has come.
    async fn turn(&self, plan: &Plan, key: Option<&str>) -> Result<(Plan, Turn)> {
        let settled = |plan: &Plan| Plan { settled: true, ..plan.clone() };
        if !plan.settled {
            let turn = plan.slot.enter(&self.backends, key);
            if Arc::ptr_eq(turn.generation(), &plan.generation) {
                return Ok((settled(plan), turn));
            }
            if let Ok(Some(plan)) = self.again(plan, Arc::clone(turn.generation())).await {
                return Ok((plan, turn));
            }
        }
        if plan.generation.life.is_over() {
            return Err(drained());
        }
        Ok((settled(plan), self.begins(plan)))
    }

    fn begins(&self, plan: &Plan) -> Turn {
        Turn::begin(&self.backends, &plan.slot, Arc::clone(&plan.generation))
    }

    /// The plan on another generation of its back-end, settled, if that has the model.
    pub(super) async fn again(
        &self,
        plan: &Plan,
        generation: Arc<crate::Generation>,
    ) -> Result<Option<Plan>> {
        let key = name::fold(&plan.info.id);
        Ok(match self.look_up(&plan.slot, generation, called(&key)).await? {
            Some(other) => {
                Some(Plan { settled: true, alone: plan.alone, ..self.less(other).await })
            }
            None => None,
        })
    }
}

impl Ready {
    /// Asks for something that comes whole.
    async fn whole<T, F>(mut self, ask: impl FnOnce(Arc<dyn Backend>) -> F) -> Result<Answered<T>>
    where
        F: Future<Output = Result<T>>,
    {
        let by = self.plan.provenance();
        let backend = Arc::clone(&self.plan.generation.backend);
        match self.turn.wait(ask(backend)).await {
            Ok(what) => {
                self.turn.finish();
                Ok(Answered { what, by })
            }
            Err(error) => Err(by.naming(error)),
        }
    }
}

/// Whether what is live may do better than a candidate that did not begin: it is at fault, or may
/// or can not answer this.
fn steps_aside(error: &Error) -> bool {
    blames(error) || matches!(error.code, Code::Blocked | Code::Unsupported)
}
