//! A residency: what one model knows of one request. Its history, how much of it the cache covers, and whether it runs.
//!
//! A residency takes grants and applies verdicts; it never decides when to run or what to evict. That is
//! [`crate::host`]'s.

use crate::id::{Fence, RequestId};
use crate::message::{Admission, PeerReq, ReportRow, RowOutcome};
use crate::route::Route;
use crate::step::{Sampled, SequenceId, Tokens};
use crate::text::PatternState;
use std::time::Duration;
use tokenrouter_policies::{
    Aux, JustSampled, ModelIx, PolicyState, Position, Proposal, StepView, TextFacts, Token, Verdict,
};

/// Most proposed tokens that are judged. The judged positions must fit into one forward pass.
const PROPOSAL_MAX: usize = 64;

/// One request at one model.
#[derive(Clone, Debug)]
pub struct Residency {
    /// The highest fence taken. Survives eviction.
    pub(crate) fence: Fence,
    /// What the request asks for.
    pub(crate) admission: Admission,
    /// The cache's name of the sequence; a new one after every eviction.
    pub(crate) sequence: SequenceId,
    /// Leading positions in the cache, those of a running step included.
    pub(crate) cached: Position,
    /// Whether the model works on it.
    pub(crate) phase: Phase,
    /// When it last moved.
    pub(crate) moved: Duration,
    /// When its home was last reminded of it.
    pub(crate) named: Duration,
    /// Committed tokens, then offers that home has not confirmed.
    history: Vec<Token>,
    /// Proposed tokens after the history, to be judged: in no anchor and no report.
    drafts: Tokens,
    aux: Aux,
    state: PolicyState,
    scan: Scan,
    computed: u32,
    generated: u32,
}

/// Whether the model works on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It holds the turn and wants tokens.
    Running,
    /// It lives at a peer, has ended, or waits for a grant that joins. Its cache is kept while there is room.
    Pending,
}

/// Whether a grant was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// It runs; the cache must be cut to this many positions if it holds more.
    Taken {
        /// Leading positions that stay.
        keep: Position,
    },
    /// It begins beyond what is held here.
    Missing {
        /// Leading positions held.
        have: Position,
    },
}

/// The automaton over the policy's patterns, and how much of the history it has seen.
#[derive(Clone, Debug, Default)]
struct Scan {
    seen: usize,
    matched: PatternState,
    latest: Option<u8>,
}

impl Residency {
    /// An empty residency, before its first grant.
    pub(crate) fn new(admission: Admission, sequence: SequenceId, route: &Route) -> Self {
        Self {
            fence: Fence::default(),
            admission,
            sequence,
            cached: 0,
            phase: Phase::Pending,
            moved: Duration::ZERO,
            named: Duration::ZERO,
            history: Vec::new(),
            drafts: Tokens::new(),
            aux: Aux::new(),
            state: PolicyState::default(),
            scan: Scan { matched: route.patterns.start(), ..Scan::default() },
            computed: 0,
            generated: 0,
        }
    }

    /// Takes a grant whose fence is higher than the one held. One that does not join still raises the fence, or an
    /// older grant on a slower path would be taken after it.
    pub(crate) fn take(&mut self, grant: PeerReq, route: &Route) -> Grant {
        self.fence = grant.fence;
        self.phase = Phase::Pending;
        self.drafts.clear();
        let from = grant.from as usize;
        if grant.from > self.cached || from > self.history.len() {
            // Drafts may have been fed; they are gone from the tokens and so they go from the cache.
            return Grant::Missing { have: self.cached.min(self.length()) };
        }
        // What the suffix repeats stays, so that the pattern automaton need not start again.
        let known = self.history[from..].iter().zip(&grant.suffix);
        let same = known.take_while(|(held, granted)| held == granted).count();
        self.history.truncate(from + same);
        self.history.extend_from_slice(&grant.suffix[same..]);
        if self.scan.seen > from + same {
            self.scan = Scan { matched: route.patterns.start(), ..Scan::default() };
        }
        self.drafts = grant.proposal;
        // No token beyond the longest reply is worth judging, and there may be no room for it.
        let left = self.admission.length_max.saturating_sub(self.length());
        self.drafts.truncate(PROPOSAL_MAX.min(left as usize));
        self.aux = grant.aux;
        self.state = grant.state;
        self.phase = Phase::Running;
        Grant::Taken { keep: grant.from }
    }

    /// The cache was taken: the request must be granted from 0.
    pub(crate) fn evict(&mut self, sequence: SequenceId) {
        self.sequence = sequence;
        self.cached = 0;
        self.phase = Phase::Pending;
        self.history.clear();
        self.drafts.clear();
        self.scan = Scan::default();
    }

    /// Tokens that wait to be fed.
    pub(crate) fn unseen(&self) -> Position {
        self.fed_length() - self.cached
    }

    /// Up to `count` of the unseen tokens, from the first; the cache is taken to hold them from now on.
    pub(crate) fn feed(&mut self, count: Position) -> Tokens {
        let start = self.cached as usize;
        let waiting = self.history.iter().chain(&self.drafts).skip(start);
        let tokens = waiting.take(count as usize).copied().collect();
        self.cached += count;
        self.computed += count;
        tokens
    }

    /// How many positions need logits if all unseen tokens are fed: the last of the history, and every draft.
    pub(crate) fn outputs(&self) -> u16 {
        1 + self.drafts.len() as u16
    }

    /// The length of the history: committed tokens and offers.
    pub fn length(&self) -> Position {
        self.history.len() as Position
    }

    /// The history: committed tokens, then offers.
    pub fn history(&self) -> &[Token] {
        &self.history
    }

    /// The fence held.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// Whether the model works on it.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Leading positions in the cache, those of a running step included.
    pub fn cached(&self) -> Position {
        self.cached
    }

    /// Applies what a step sampled: the policy decides, and the row for home says what came of it.
    pub(crate) fn apply(
        &mut self,
        model: ModelIx,
        rid: RequestId,
        sampled: &[Sampled],
        route: &Route,
    ) -> ReportRow {
        let start = self.length();
        self.generated += sampled.len() as u32;
        let accepted = self.judge(model, sampled, route);
        let mut offered = Tokens::from_slice(&self.drafts[..accepted]);
        self.drafts.clear();
        self.history.extend_from_slice(&offered);
        self.cached = self.cached.min(self.length());
        let outcome = match self.ended(&offered, route) {
            true => RowOutcome::Ended,
            false => self.decide(model, &sampled[accepted], route, &mut offered),
        };
        if outcome != RowOutcome::Going {
            self.phase = Phase::Pending;
        }
        ReportRow { start, tokens: offered, outcome, ..self.report(rid) }
    }

    /// The row of a step that decided nothing, a chunk of a prompt: progress, and what it cost.
    pub(crate) fn report(&mut self, rid: RequestId) -> ReportRow {
        ReportRow {
            rid,
            fence: self.fence,
            start: self.length(),
            tokens: Tokens::new(),
            cached: self.cached.min(self.length()),
            outcome: RowOutcome::Going,
            state: self.state.clone(),
            computed: std::mem::take(&mut self.computed),
            generated: std::mem::take(&mut self.generated),
        }
    }

    /// Lets the policy route after one sampled token, and applies the verdict to the history.
    fn decide(
        &mut self,
        model: ModelIx,
        sampled: &Sampled,
        route: &Route,
        offered: &mut Tokens,
    ) -> RowOutcome {
        let text = self.scan(sampled.token, route);
        let bytes = route.vocabulary.bytes(sampled.token);
        let view = StepView { text, bytes, ..self.view(model, self.length(), sampled) };
        let mut state = std::mem::take(&mut self.state);
        let verdict = route.policy.route(&view, &mut state);
        let (to, fate) = match verdict {
            Verdict::Handoff { to, just_sampled } if to != model => (Some(to), just_sampled),
            _ => (None, JustSampled::Commit),
        };
        let aux = to.map(|to| route.policy.send(&view, to, &state)).unwrap_or_default();
        self.state = state;
        if fate == JustSampled::Commit {
            self.history.push(sampled.token);
            offered.push(sampled.token);
            if self.ended(&[sampled.token], route) {
                return RowOutcome::Ended;
            }
        }
        let Some(to) = to else { return RowOutcome::Going };
        let proposal = match fate {
            JustSampled::Propose => Tokens::from_slice(&[sampled.token]),
            _ => Tokens::new(),
        };
        RowOutcome::Next { to, aux, proposal }
    }

    /// How many of the drafts the policy accepts, given this model's own view of each.
    fn judge(&mut self, model: ModelIx, sampled: &[Sampled], route: &Route) -> usize {
        if self.drafts.is_empty() {
            return 0;
        }
        let views: Vec<StepView<'_>> = (self.length()..)
            .zip(sampled)
            .take(self.drafts.len())
            .map(|(position, s)| StepView {
                bytes: route.vocabulary.bytes(s.token),
                ..self.view(model, position, s)
            })
            .collect();
        let proposal = Proposal { tokens: &self.drafts, own: &views, aux: &self.aux };
        let mut state = self.state.clone();
        let accepted = route.policy.receive(&proposal, &mut state).min(self.drafts.len());
        self.state = state;
        accepted
    }

    /// What a policy sees of a step besides its text.
    fn view<'a>(&self, model: ModelIx, position: Position, sampled: &'a Sampled) -> StepView<'a> {
        StepView {
            model,
            position,
            prompt: self.admission.prompt,
            token: sampled.token,
            bytes: &[],
            signals: &sampled.signals,
            text: TextFacts::default(),
            draws: self.admission.draws,
        }
    }

    /// Facts about the text up to `token`. Only looked for where the policy has patterns.
    fn scan(&mut self, token: Token, route: &Route) -> TextFacts {
        if route.patterns.is_empty() {
            return TextFacts::default();
        }
        if self.scan.seen == 0 {
            self.scan.matched = route.patterns.start();
        }
        for &token in &self.history[self.scan.seen..] {
            // Byte by byte: one token may complete several patterns, and the last of them is the latest.
            for &byte in route.vocabulary.bytes(token) {
                let completed = route.patterns.advance(&mut self.scan.matched, byte);
                if completed.0 != 0 {
                    self.scan.latest = Some(63 - completed.0.leading_zeros() as u8);
                }
            }
        }
        self.scan.seen = self.history.len();
        let mut ahead = self.scan.matched.clone();
        let completed = route.patterns.advance_all(&mut ahead, route.vocabulary.bytes(token));
        TextFacts { completed, latest: self.scan.latest }
    }

    /// Whether these tokens, the last of the history, end the reply as far as this model can tell.
    fn ended(&self, tokens: &[Token], route: &Route) -> bool {
        let eos = !self.admission.ignore_eos && tokens.iter().any(|&t| route.vocabulary.ends(t));
        eos || self.length() >= self.admission.length_max
    }

    /// Leading positions of history and drafts together.
    fn fed_length(&self) -> Position {
        (self.history.len() + self.drafts.len()) as Position
    }

    /// Asserts what must hold of every residency between inputs.
    pub(crate) fn check(&self) {
        assert!(self.cached <= self.fed_length(), "the cache is ahead of the tokens");
        assert!(self.drafts.is_empty() || self.phase == Phase::Running, "drafts without a turn");
    }
}

#[cfg(test)]
mod tests;
