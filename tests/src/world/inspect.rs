//! The invariants, each a function, and what they remember. They look at the machines from outside and at what they say,
//! and compare both with the reference and with the tokens the engines really hold.

use crate::world::World;
use crate::world::plan::Planned;
use crate::world::reference::{Reference, interpret};
use std::fmt::Write as _;
use tokenrouter_policies::{Draws, ModelIx, Purpose, Token};
use tokenrouter_protocol::residency::Phase;
use tokenrouter_protocol::{
    Fence, HomeWord, Life, ModelSays, ModelWord, Outcome, PeerReq, RequestId, Route, home,
};

/// A request and what has come of it.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) fate: Fate,
    /// Its name, once it has entered.
    pub(crate) rid: Option<RequestId>,
    draws: Draws,
    prompt: usize,
    reference: Reference,
    /// The prompt and the whole reply.
    tokens: Vec<Token>,
    /// Tokens the client has received.
    pub(crate) received: usize,
    text: String,
    fence: Fence,
}

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Planned,
    Live(RequestId),
    Cancelled,
    Done,
}

/// An offer that arrives at a home, and how things stood before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    rid: RequestId,
    by: (ModelIx, Life, Fence),
    owner: Option<(ModelIx, Life, Fence)>,
}

/// A number that tells a request's draws from those of others.
pub(crate) fn mark(draws: &Draws) -> u64 {
    draws.bits(0, Purpose::Token)
}

impl Case {
    pub(crate) fn new(planned: &Planned, routes: &[Route]) -> Self {
        let request = &planned.request;
        let reference = interpret(request, &routes[request.route.index()]);
        let written = reference.written.iter().map(|(_, token)| *token);
        Self {
            fate: Fate::Planned,
            rid: None,
            draws: request.draws,
            prompt: request.prompt.len(),
            tokens: request.prompt.iter().copied().chain(written).collect(),
            reference,
            received: 0,
            text: String::new(),
            fence: Fence::default(),
        }
    }

    pub(crate) fn mark(&self) -> u64 {
        mark(&self.draws)
    }

    /// The reply came to its end: it is the reference, token by token and byte by byte.
    fn check_outcome(&self, outcome: &Outcome) {
        let Reference { written, text, finish } = &self.reference;
        assert_eq!(&outcome.finish, finish, "another reason");
        assert_eq!(self.received, written.len(), "a reply of another length");
        assert_eq!(outcome.completion_tokens as usize, written.len(), "usage is what is committed");
        assert_eq!(outcome.prompt_tokens as usize, self.prompt);
        assert_eq!(&self.text, text, "another text");
        for (model, share) in &outcome.shares {
            let own = written.iter().filter(|(by, _)| by == model).count();
            assert_eq!(share.committed as usize, own, "tokens of {model:?}");
            assert!(share.generated >= share.committed, "committed but never sampled");
        }
    }
}

impl World {
    /// The rows of a message, with the turns they meet.
    pub(crate) fn offers(&self, home: usize, says: &ModelSays) -> Vec<Offer> {
        let rows = says.words.iter().filter_map(|word| match word {
            ModelWord::Row(row) => Some(row),
            _ => None,
        });
        let turn = |rid| {
            let ledger = self.homes[home].ledger(rid)?;
            Some((ledger.owner(), ledger.granted(), ledger.fence()))
        };
        rows.map(|row| Offer {
            rid: row.rid,
            by: (says.model, says.life, row.fence),
            owner: turn(row.rid),
        })
        .collect()
    }

    /// Invariant 2: whatever reaches a client was offered by the owner of the current turn.
    pub(crate) fn check_owner(&self, offers: &[Offer], effects: &[home::Effect]) {
        for effect in effects {
            let home::Effect::Accepted { rid, progress: Some(progress), .. } = effect else {
                continue;
            };
            let offer =
                offers.iter().find(|offer| offer.rid == *rid && Some(offer.by) == offer.owner);
            let offer = offer.unwrap_or_else(|| panic!("{rid}: words of a model that has no turn"));
            assert_eq!(offer.by.0, progress.model, "{rid}: another writer");
        }
    }

    /// Invariants 1, 4 and 6, as far as a client can tell: each token once, in order, none after the end.
    pub(crate) fn check_home_effect(&mut self, home: usize, effect: &home::Effect) {
        match effect {
            home::Effect::Say { says, .. } => {
                for word in &says.words {
                    if let HomeWord::Grant(grant) = word {
                        self.check_grant(home, grant);
                    }
                }
            }
            home::Effect::Accepted { progress: None, .. } => {}
            home::Effect::Accepted { rid, progress: Some(progress), .. } => {
                let case = &mut self.cases[self.by_rid[rid]];
                assert_eq!(case.fate, Fate::Live(*rid), "progress of a request that is over");
                for &token in &progress.tokens {
                    let expected = case.reference.written.get(case.received);
                    assert_eq!(
                        Some(&(progress.model, token)),
                        expected,
                        "{rid}: not the reference"
                    );
                    case.received += 1;
                }
                case.text.push_str(&progress.text);
                assert!(case.reference.text.starts_with(&case.text), "{rid}: {:?}", case.text);
            }
            home::Effect::Done { rid, result } => {
                let case = &mut self.cases[self.by_rid[rid]];
                assert_eq!(case.fate, Fate::Live(*rid), "a request that ends twice");
                case.fate = Fate::Done;
                let outcome = result.as_ref().unwrap_or_else(|e| panic!("{rid} failed: {e}"));
                case.check_outcome(outcome);
            }
        }
    }

    /// A grant speaks of committed tokens only, and raises the turn.
    fn check_grant(&mut self, home: usize, grant: &PeerReq) {
        let rid = grant.rid;
        // A request may be over by the time the message is complete.
        let Some(ledger) = self.homes[home].ledger(rid) else { return };
        assert_eq!(grant.suffix[..], ledger.tokens()[grant.from as usize..], "{rid}: suffix");
        assert!(grant.from < ledger.committed(), "{rid}: nothing to feed");
        assert_eq!(grant.admission.is_some(), grant.from == 0, "{rid}: admission");
        if let Some(&case) = self.by_rid.get(&rid) {
            assert!(grant.fence > self.cases[case].fence, "{rid}: a turn twice");
            self.cases[case].fence = grant.fence;
        }
    }

    /// Invariant 1 at home: what is committed is what the client has, and nothing of a finished request is left.
    pub(crate) fn check_home(&self, home: usize) {
        let home = &self.homes[home];
        home.check();
        for rid in home.requests() {
            let Some(ledger) = home.ledger(rid) else { continue };
            let case = &self.cases[self.by_rid[&rid]];
            assert_eq!(case.fate, Fate::Live(rid), "a request that came back");
            let committed = ledger.committed() as usize;
            assert_eq!(committed, case.prompt + case.received, "{rid}: committed but not told");
            assert_eq!(ledger.tokens(), &case.tokens[..committed], "{rid}: committed prefix");
            assert!(ledger.fence() >= case.fence, "{rid}: a turn taken back");
        }
    }

    /// Invariants 2, 3 and 5 at a model: fences only rise, its cache is what it says, and under the current turn that is
    /// the committed prefix and then its own offers.
    pub(crate) fn check_host(&mut self, model: usize) {
        let side = &mut self.hosts[model];
        side.host.check();
        if !side.host.busy() {
            assert_eq!(side.host.blocks_used(), side.engine.blocks_used(), "blocks in use");
        }
        side.fences.retain(|rid, _| side.host.resident(*rid).is_some());
        for rid in side.host.requests() {
            let Some(resident) = side.host.resident(rid) else { continue };
            let before = side.fences.insert(rid, resident.fence());
            assert!(before.is_none_or(|before| before <= resident.fence()), "{rid}: a lower fence");
            let history = resident.history();
            let cached = (resident.cached() as usize).min(history.len());
            if cached > 0 {
                let held = side.engine.tokens(side.sequences[&rid]);
                assert!(held.len() >= cached, "{rid}: the cache holds less than it is said to");
                assert_eq!(held[..cached], history[..cached], "{rid}: cache and history");
            }
            let ledger = self.homes[usize::from(rid.home.node)].ledger(rid);
            let Some(ledger) = ledger.filter(|l| l.fence() == resident.fence()) else { continue };
            assert_eq!(usize::from(ledger.owner().0), model, "{rid}: a turn of two owners");
            // A resident whose grant did not join keeps an older history until the next.
            if resident.phase() == Phase::Running {
                assert!(history.starts_with(ledger.tokens()), "{rid}: not the committed prefix");
                let whole = &self.cases[self.by_rid[&rid]].tokens;
                let known = history.len().min(whole.len());
                assert_eq!(history[..known], whole[..known], "{rid}: offers off the reference");
            }
        }
    }

    /// Whether nothing is left to happen but the passing of time.
    pub(crate) fn at_rest(&self) -> bool {
        self.under_way == 0
            && self.now >= self.plan.faults.until
            && self.homes.iter().all(|home| home.live() == 0 && home.closing() == 0)
            && self.hosts.iter().all(|side| side.host.held() == 0 && !side.host.busy())
            && self.cases.iter().all(|case| matches!(case.fate, Fate::Done | Fate::Cancelled))
    }

    /// Invariant 4: at rest, every block is back.
    pub(crate) fn check_rest(&self) {
        assert!(self.at_rest(), "no events are left: {}", self.unrest());
        for side in &self.hosts {
            assert_eq!(side.host.blocks_used(), 0, "blocks that never came back");
            assert!(side.engine.is_empty(), "sequences that nobody closed");
        }
    }

    /// What has not come to rest, in words.
    pub(crate) fn unrest(&self) -> String {
        let mut text = format!("{} messages and steps under way", self.under_way);
        for (number, home) in self.homes.iter().enumerate() {
            let (live, closing) = (home.live(), home.closing());
            let _ = write!(text, "; home {number}: {live} live, {closing} closing");
        }
        for (number, side) in self.hosts.iter().enumerate() {
            let (held, busy) = (side.host.held(), side.host.busy());
            let _ = write!(text, "; model {number}: {held} held, busy: {busy}");
        }
        for case in &self.cases {
            let _ = write!(text, "; {:?} at {} tokens", case.fate, case.received);
        }
        text
    }
}
