//! A ledger: home's truth about one request. Which tokens are final, who owns the turn, and what each model is known to
//! hold.
//!
//! Only a ledger commits, and only a ledger raises a turn. Whatever is refused here can reach nobody. It never sends,
//! waits or keeps time: [`crate::home`] does.

use crate::id::{Fence, Life, RequestId};
use crate::message::{Admission, PeerReq, ReportRow, RowOutcome};
use crate::request::{Finish, Outcome, Progress, Request, RouteIx, Share};
use crate::route::Route;
use crate::step::{Sampling, Tokens};
use crate::text::{Detokenizer, HiddenSet, PatternSet, PatternState};
use smallvec::SmallVec;
use tokenrouter_policies::{Aux, Draws, ModelIx, PolicyState, Position, Token};

/// Home's record of one request.
#[derive(Clone, Debug)]
pub struct Ledger {
    rid: RequestId,
    route: RouteIx,
    prompt: Position,
    length_max: Position,
    sampling: Sampling,
    draws: Draws,
    ignore_eos: bool,
    /// Prompt and committed tokens; only ever grows.
    tokens: Vec<Token>,
    fence: Fence,
    /// The life of the owner that the current turn was granted to.
    granted: Life,
    standing: Standing,
    reply: Reply,
}

/// What one life of a model is known to hold of the committed prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Anchor {
    model: ModelIx,
    life: Life,
    have: Position,
}

/// Everything of a ledger but its tokens and text: who owns the turn, what travels with it, and what each model holds.
/// A session keeps a copy, from which a later life of the home takes the request up again.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    owner: ModelIx,
    anchors: SmallVec<[Anchor; 4]>,
    state: PolicyState,
    aux: Aux,
    proposal: Tokens,
    shares: SmallVec<[(ModelIx, Share); 4]>,
    /// Handoffs since the last committed token.
    fruitless: u32,
    /// The route of a single model that the request is finished on, since others are out of reach.
    pinned: Option<RouteIx>,
    /// Those others.
    without: SmallVec<[ModelIx; 4]>,
}

/// What became of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Taken {
    /// Not of the current turn, or its position is committed already.
    Stale,
    /// It starts beyond the committed prefix: a row before it was lost.
    Hole,
    /// Accepted, as far as the reply goes.
    Accepted {
        /// What the client gets, if anything was committed or finished.
        progress: Option<Progress>,
        /// What comes next.
        then: Then,
    },
}

/// What home must do after an accepted row.
#[derive(Clone, Debug, PartialEq)]
pub enum Then {
    /// The owner goes on by itself.
    GoOn,
    /// The owner waits for a turn, or another model is the owner now: grant.
    Grant,
    /// The reply is complete.
    Finish(Finish),
    /// The models hand the request to and fro, and none writes: fail.
    Circling,
}

/// Most handoffs in a row that commit nothing. Each of the known policies needs one.
pub const FRUITLESS_MAX: u32 = 64;

impl Ledger {
    /// A ledger for a new request. No turn is granted yet.
    pub fn open(rid: RequestId, request: Request, route: &Route) -> Self {
        let prompt = request.prompt.len() as Position;
        let standing = Standing {
            owner: route.first_owner(&request.draws, prompt),
            anchors: SmallVec::new(),
            state: PolicyState::default(),
            aux: Aux::new(),
            proposal: Tokens::new(),
            shares: route.models.iter().map(|&m| (m, Share::default())).collect(),
            fruitless: 0,
            pinned: None,
            without: SmallVec::new(),
        };
        Self {
            rid,
            route: request.route,
            prompt,
            length_max: prompt + request.max_tokens,
            sampling: request.sampling,
            draws: request.draws,
            ignore_eos: request.ignore_eos,
            tokens: request.prompt,
            fence: Fence::default(),
            granted: Life::default(),
            standing,
            reply: Reply::new(request.stop),
        }
    }

    /// The ledger of a request that an earlier life of the home had: its committed reply so far, and where it stood after
    /// the last row; `None` where there was none yet. With it why the reply ended, if it has: that life may have died
    /// before it could say so. No turn of this life is granted yet.
    pub fn adopt(
        rid: RequestId,
        request: Request,
        route: &Route,
        reply: &[Token],
        standing: Option<Standing>,
    ) -> (Self, Option<Finish>) {
        let mut ledger = Self::open(rid, request, route);
        let (_, finish) = ledger.commit(reply, route);
        // The text was shown before: the same tokens give the same text, and leave the same bytes waiting.
        ledger.reply.take(finish.is_some());
        ledger.standing = standing.unwrap_or(ledger.standing);
        (ledger, finish)
    }

    /// Where the request stands, for the copy that its session keeps.
    pub fn standing(&self) -> Standing {
        self.standing.clone()
    }

    /// The models that are known to hold something, and in which life.
    pub fn anchored(&self) -> SmallVec<[(ModelIx, Life); 4]> {
        self.standing.anchors.iter().map(|anchor| (anchor.model, anchor.life)).collect()
    }

    /// Raises the turn and grants it to nobody.
    pub fn raise(&mut self, home: Life) {
        self.fence = Fence { home, turn: self.fence.turn + 1 };
    }

    /// Raises the turn and words it for the owner, whose life is `life`.
    pub fn grant(&mut self, home: Life, life: Life) -> PeerReq {
        self.raise(home);
        self.granted = life;
        // At least one token must be left to feed, or nothing gives logits.
        let from = self.anchor(self.standing.owner, life).min(self.committed() - 1);
        PeerReq {
            rid: self.rid,
            fence: self.fence,
            life,
            from,
            suffix: Tokens::from_slice(&self.tokens[from as usize..]),
            proposal: self.standing.proposal.clone(),
            aux: self.standing.aux.clone(),
            state: self.standing.state.clone(),
            admission: (from == 0).then(|| Box::new(self.admission())),
        }
    }

    /// Takes a row that life `life` of `model` reports.
    pub fn take(&mut self, model: ModelIx, life: Life, row: ReportRow, route: &Route) -> Taken {
        if row.fence != self.fence || life != self.granted {
            return Taken::Stale;
        }
        if row.start > self.committed() {
            return Taken::Hole;
        }
        if row.start < self.committed() {
            return Taken::Stale;
        }
        let (committed, finish) = self.commit(&row.tokens, route);
        let text = self.reply.take(finish.is_some());
        self.count(model, |share| {
            share.committed += committed.len() as u32;
            share.generated += row.generated;
            share.computed += row.computed;
        });
        self.anchor_at(model, life, row.cached.min(self.committed()));
        let progress = (!committed.is_empty() || finish.is_some()).then(|| Progress {
            model,
            tokens: committed,
            text,
        });
        let then = match finish {
            Some(finish) => Then::Finish(finish),
            None => self.follow(row, route),
        };
        Taken::Accepted { progress, then }
    }

    /// Remembers that life `life` of `model` holds at most `have` positions of what it was believed to hold.
    pub fn lower(&mut self, model: ModelIx, life: Life, have: Position) {
        let have = have.min(self.anchor(model, life));
        self.anchor_at(model, life, have);
    }

    /// The end of the request, as its client is told.
    pub fn outcome(&self, finish: Finish) -> Outcome {
        Outcome {
            finish,
            prompt_tokens: self.prompt,
            completion_tokens: self.committed() - self.prompt,
            shares: self.standing.shares.clone(),
            without: self.standing.without.clone(),
        }
    }

    /// Lets `model` finish the request alone, on its own route `route`, since `lost` is out of reach. What it holds was
    /// admitted on another route, so it is granted everything anew.
    pub fn pin(&mut self, model: ModelIx, route: RouteIx, lost: ModelIx) {
        let standing = &mut self.standing;
        standing.owner = model;
        standing.pinned = Some(route);
        standing.anchors.clear();
        if !standing.without.contains(&lost) {
            standing.without.push(lost);
        }
        self.remember(PolicyState::default(), Aux::new(), Tokens::new());
    }

    /// Whether one model finishes the request alone.
    pub fn is_pinned(&self) -> bool {
        self.standing.pinned.is_some()
    }

    /// Prompt and committed tokens.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// The length of prompt and committed tokens.
    pub fn committed(&self) -> Position {
        self.tokens.len() as Position
    }

    /// The current turn.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// The model that holds the current turn.
    pub fn owner(&self) -> ModelIx {
        self.standing.owner
    }

    /// The life of the owner that the current turn is for.
    pub fn granted(&self) -> Life {
        self.granted
    }

    /// The route the request runs on.
    pub fn route(&self) -> RouteIx {
        self.route
    }

    /// Asserts what must hold of every ledger at every moment.
    pub fn check(&self) {
        assert!(
            self.prompt >= 1 && self.committed() >= self.prompt,
            "the prompt is part of the prefix"
        );
        assert!(self.committed() <= self.length_max, "committed beyond the limit");
        for anchor in &self.standing.anchors {
            assert!(anchor.have <= self.committed(), "an anchor beyond the committed prefix");
        }
        let written: u32 = self.standing.shares.iter().map(|(_, share)| share.committed).sum();
        assert_eq!(written, self.committed() - self.prompt, "every committed token has one writer");
    }

    /// Commits tokens up to the first that ends the reply; the committed ones, and why the reply ended.
    fn commit(&mut self, tokens: &[Token], route: &Route) -> (Tokens, Option<Finish>) {
        for (at, &token) in tokens.iter().enumerate() {
            self.tokens.push(token);
            let stop = self.reply.push(route.vocabulary.visible(token), &route.hidden);
            let finish = if !self.ignore_eos && route.vocabulary.ends(token) {
                Some(Finish::Eos(token))
            } else if let Some(stop) = stop {
                return (Tokens::from_slice(&tokens[..=at]), Some(Finish::Stop(stop)));
            } else {
                (self.committed() == self.length_max).then_some(Finish::Length)
            };
            if finish.is_some() {
                let finish = self.reply.release().map(Finish::Stop).or(finish);
                return (Tokens::from_slice(&tokens[..=at]), finish);
            }
        }
        (Tokens::from_slice(tokens), None)
    }

    /// What an accepted row that does not end the reply asks for.
    fn follow(&mut self, row: ReportRow, route: &Route) -> Then {
        match row.outcome {
            // A chunk of a prompt: nothing was decided, so nothing that travels has changed.
            RowOutcome::Going if row.tokens.is_empty() => Then::GoOn,
            RowOutcome::Going => {
                self.standing.fruitless = 0;
                self.remember(row.state, Aux::new(), Tokens::new());
                Then::GoOn
            }
            // A model that names nobody of the route, or an end this walk does not confirm: the owner gets a new turn.
            RowOutcome::Next { to, .. } if !route.models.contains(&to) => Then::Grant,
            RowOutcome::Ended => {
                self.remember(row.state, Aux::new(), Tokens::new());
                Then::Grant
            }
            RowOutcome::Next { to, aux, proposal } => {
                self.remember(row.state, aux, proposal);
                self.standing.owner = to;
                self.count(to, |share| share.handoffs += 1);
                self.standing.fruitless =
                    if row.tokens.is_empty() { self.standing.fruitless + 1 } else { 0 };
                if self.standing.fruitless > FRUITLESS_MAX { Then::Circling } else { Then::Grant }
            }
        }
    }

    fn remember(&mut self, state: PolicyState, aux: Aux, proposal: Tokens) {
        self.standing.state = state;
        self.standing.aux = aux;
        self.standing.proposal = proposal;
    }

    fn anchor(&self, model: ModelIx, life: Life) -> Position {
        let known = self.standing.anchors.iter().find(|a| a.model == model && a.life == life);
        known.map_or(0, |a| a.have)
    }

    fn anchor_at(&mut self, model: ModelIx, life: Life, have: Position) {
        match self.standing.anchors.iter_mut().find(|a| a.model == model) {
            Some(anchor) => *anchor = Anchor { model, life, have },
            None => self.standing.anchors.push(Anchor { model, life, have }),
        }
    }

    fn count(&mut self, model: ModelIx, add: impl FnOnce(&mut Share)) {
        if let Some((_, share)) = self.standing.shares.iter_mut().find(|(m, _)| *m == model) {
            add(share);
        }
    }

    fn admission(&self) -> Admission {
        Admission {
            route: self.standing.pinned.unwrap_or(self.route),
            prompt: self.prompt,
            length_max: self.length_max,
            sampling: self.sampling,
            draws: self.draws,
            ignore_eos: self.ignore_eos,
        }
    }
}

/// The text of a reply: bytes not shown yet, and the stop strings looked for in them.
#[derive(Clone, Debug)]
struct Reply {
    /// Bytes that may be the beginning of hidden text.
    held: Vec<u8>,
    detokenizer: Detokenizer,
    strings: Vec<String>,
    stops: PatternSet,
    matched: PatternState,
}

impl Reply {
    fn new(strings: Vec<String>) -> Self {
        let stops = PatternSet::new(&strings);
        let matched = stops.start();
        Self { held: Vec::new(), detokenizer: Detokenizer::default(), strings, stops, matched }
    }

    /// Takes the bytes of a token; the stop string that what is shown of them completes, which is cut off.
    fn push(&mut self, bytes: &[u8], hidden: &HiddenSet) -> Option<String> {
        if hidden.is_empty() {
            return self.show(bytes);
        }
        // As long as most tokens are, so that showing one allocates nothing.
        let mut shown = SmallVec::<[u8; 32]>::new();
        for &byte in bytes {
            hidden.advance(&mut self.held, byte, &mut shown);
        }
        self.show(&shown)
    }

    /// The reply has no more text, so what was held back is no hidden text; the stop string it completes.
    fn release(&mut self) -> Option<String> {
        let held = std::mem::take(&mut self.held);
        self.show(&held)
    }

    fn show(&mut self, bytes: &[u8]) -> Option<String> {
        if self.stops.is_empty() {
            self.detokenizer.push(bytes);
            return None;
        }
        for (at, &byte) in bytes.iter().enumerate() {
            let completed = self.stops.advance(&mut self.matched, byte);
            let hit = (0..self.strings.len()).filter(|&i| completed.contains(i));
            // Of several that end here the longest began first: nothing of any of them may be shown.
            if let Some(hit) = hit.max_by_key(|&i| self.strings[i].len()) {
                self.detokenizer.push(&bytes[..=at]);
                self.detokenizer.cut(self.strings[hit].len());
                return Some(self.strings[hit].clone());
            }
        }
        self.detokenizer.push(bytes);
        None
    }

    fn take(&mut self, ended: bool) -> String {
        if ended {
            return self.detokenizer.finish();
        }
        self.detokenizer.take(self.stops.held(&self.matched))
    }
}

#[cfg(test)]
mod tests;
