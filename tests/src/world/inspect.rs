//! The invariants, each a function, and what they remember. They look at the machines from outside and at what they say,
//! and compare both with the reference, where there is one, and with the tokens the engines really hold.

use crate::world::engine::{Chain, Source};
use crate::world::plan::{GRANTS_MANY, Micros, Planned};
use crate::world::recovery::Cause;
use crate::world::reference::{Reference, interpret, read};
use crate::world::{HomeSide, HostSide, World};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use tokenrouter_policies::{Draws, ModelIx, Position, Purpose, Token};
use tokenrouter_protocol::residency::Phase;
use tokenrouter_protocol::{
    Adoption, Failure, Fence, HomeSays, HomeWord, Life, ModelSays, ModelWord, Outcome, PeerReq,
    Progress, ReportRow, RequestId, Route, RowOutcome, Tokens, home, host,
};

/// A request and what has come of it.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) fate: Fate,
    /// Its name, once it has entered.
    pub(crate) rid: Option<RequestId>,
    /// What its session keeps.
    pub(crate) copy: Adoption,
    /// What must come of it; `None` where engines never sample the same twice.
    reference: Option<Reference>,
    /// The prompt and what the client has received.
    tokens: Vec<Token>,
    /// The hash of these tokens.
    chain: Chain,
    /// The tokens received, and who wrote each.
    pub(crate) written: Vec<(ModelIx, Token)>,
    text: String,
    /// The turn granted last, and what it proposed.
    fence: Fence,
    proposal: Tokens,
    /// What offers that were not accepted yet were sampled on: by model, its life, turn and position.
    sources: BTreeMap<(ModelIx, Life, Fence, Position), Source>,
    /// The most positions that each life of a model said it holds.
    held: BTreeMap<(ModelIx, Life), Position>,
    /// Since when it stands still after a fault, and which.
    pub(crate) hit: Option<(Micros, Cause)>,
}

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Planned,
    Live(RequestId),
    /// Its home is dead, and its session has not brought it to the next life yet.
    Away(RequestId),
    Cancelled,
    Done,
    /// Its model stopped answering for too long.
    Failed,
}

/// An offer that arrives at a home, and how things stood before.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    row: ReportRow,
    by: (ModelIx, Life, Fence),
    owner: Option<(ModelIx, Life, Fence)>,
}

/// The grants among these words: of what, under which fence, and for which life.
pub(crate) fn granted(says: &HomeSays) -> SmallVec<[(RequestId, Fence, Life); 1]> {
    let grants = says.words.iter().filter_map(|word| match word {
        HomeWord::Grant(grant) => Some((grant.rid, grant.fence, grant.life)),
        _ => None,
    });
    grants.collect()
}

/// The requests among what a model does that stop working there: handed on, ended, or robbed of their cache.
pub(crate) fn stopped(effects: &[host::Effect]) -> Vec<(RequestId, Fence)> {
    let said = effects.iter().filter_map(|effect| match effect {
        host::Effect::Say { says, .. } => Some(&says.words),
        host::Effect::Run(_) => None,
    });
    let stopped = said.flatten().filter_map(|word| match word {
        ModelWord::Row(row) if row.outcome != RowOutcome::Going => Some((row.rid, row.fence)),
        ModelWord::Missing { rid, fence, .. } => Some((*rid, *fence)),
        _ => None,
    });
    stopped.collect()
}

/// A number that tells a request's draws from those of others.
pub(crate) fn mark(draws: &Draws) -> u64 {
    draws.bits(0, Purpose::Token)
}

impl Case {
    pub(crate) fn new(planned: &Planned, routes: &[Route], restless: bool) -> Self {
        let request = planned.request.clone();
        let reference = (!restless).then(|| interpret(&request, &routes[request.route.index()]));
        let tokens = request.prompt.clone();
        Self {
            fate: Fate::Planned,
            rid: None,
            reference,
            chain: tokens.iter().fold(Chain::default(), |chain, &token| chain.and(token)),
            tokens,
            written: Vec::new(),
            text: String::new(),
            fence: Fence::default(),
            proposal: Tokens::new(),
            sources: BTreeMap::new(),
            held: BTreeMap::new(),
            hit: None,
            copy: Adoption { request, reply: Vec::new(), standing: None },
        }
    }

    pub(crate) fn mark(&self) -> u64 {
        mark(&self.copy.request.draws)
    }

    /// Whether nothing more comes of it.
    fn over(&self) -> bool {
        matches!(self.fate, Fate::Done | Fate::Cancelled | Fate::Failed)
    }

    /// The client receives a piece: each token once, in order, none after the end.
    fn receive(&mut self, rid: RequestId, progress: &Progress) {
        for &token in &progress.tokens {
            if let Some(reference) = &self.reference {
                let expected = reference.written.get(self.written.len());
                assert_eq!(Some(&(progress.model, token)), expected, "{rid}: not the reference");
            }
            self.written.push((progress.model, token));
            self.tokens.push(token);
            self.chain = self.chain.and(token);
            self.copy.reply.push(token);
        }
        self.text.push_str(&progress.text);
        if let Some(reference) = &self.reference {
            assert!(reference.text.starts_with(&self.text), "{rid}: {:?}", self.text);
        }
    }

    /// Invariant 3 where it counts: the engine that offers a row had the committed prefix in its cache, and nothing else.
    fn check_source(&mut self, (model, life, fence): (ModelIx, Life, Fence), row: &ReportRow) {
        let rid = row.rid;
        assert_eq!(row.start as usize, self.tokens.len(), "{rid}: accepted elsewhere");
        let cached = self.held.entry((model, life)).or_default();
        *cached = row.cached.max(*cached);
        if !samples(row) {
            return;
        }
        let source = self.sources.remove(&(model, life, fence, row.start));
        let source = source.unwrap_or_else(|| panic!("{rid}: a row that no step sampled"));
        assert_eq!(source.sampled[0].0, self.chain, "{rid}: sampled on other tokens");
        let mut chain = self.chain;
        for (at, &token) in row.tokens.iter().enumerate() {
            let (stood_on, sampled) = source.sampled[at];
            assert_eq!(stood_on, chain, "{rid}: sampled on other tokens, {at} ahead");
            let proposed = self.proposal.get(at) == Some(&token);
            assert!(token == sampled || proposed, "{rid}: a token that nobody sampled");
            chain = chain.and(token);
        }
    }

    /// The reply came to its end: it is the reference, token by token and byte by byte.
    fn check_outcome(&self, outcome: &Outcome, routes: &[Route]) {
        let request = &self.copy.request;
        let own = read(request, &routes[request.route.index()], &self.written);
        let own = own.expect("the reply ends with its last token");
        let Reference { written, text, finish } = self.reference.as_ref().unwrap_or(&own);
        assert_eq!(&outcome.finish, finish, "another reason");
        assert_eq!(&self.written, written, "another reply");
        assert_eq!(outcome.completion_tokens as usize, written.len(), "usage is what is committed");
        assert_eq!(outcome.prompt_tokens as usize, request.prompt.len());
        assert_eq!(&self.text, text, "another text");
        for (model, share) in &outcome.shares {
            let own = written.iter().filter(|(by, _)| by == model).count();
            assert_eq!(share.committed as usize, own, "tokens of {model:?}");
            assert!(share.generated >= share.committed, "committed but never sampled");
        }
    }
}

/// Whether a row is more than a chunk of a prompt.
fn samples(row: &ReportRow) -> bool {
    !row.tokens.is_empty() || row.outcome != RowOutcome::Going
}

impl World {
    /// The rows of a message, with the turns they meet.
    pub(crate) fn offers(&self, home: usize, says: &ModelSays) -> Vec<Offer> {
        let rows = says.words.iter().filter_map(|word| match word {
            ModelWord::Row(row) => Some(row),
            _ => None,
        });
        let turn = |rid| {
            let ledger = self.homes[home].home.ledger(rid)?;
            Some((ledger.owner(), ledger.granted(), ledger.fence()))
        };
        rows.map(|row| Offer {
            row: row.clone(),
            by: (says.model, says.life, row.fence),
            owner: turn(row.rid),
        })
        .collect()
    }

    /// Notes what the rows of a step were sampled on.
    pub(crate) fn remember(&mut self, sources: Vec<Source>, effects: &[host::Effect]) {
        for effect in effects {
            let host::Effect::Say { says, .. } = effect else { continue };
            for word in &says.words {
                let ModelWord::Row(row) = word else { continue };
                if !samples(row) {
                    continue;
                }
                let case = &mut self.cases[self.by_rid[&row.rid]];
                let own = |source: &&Source| mark(&source.draws) == case.mark();
                let source = sources.iter().find(own).expect("a row of this step");
                assert_eq!(source.start, row.start, "{}: an offer for another position", row.rid);
                let key = (says.model, says.life, row.fence, row.start);
                case.sources.insert(key, source.clone());
            }
        }
    }

    /// Invariant 2: whatever is accepted was offered by the owner of the current turn, and sampled on what is committed.
    pub(crate) fn check_accepted(&mut self, offers: &[Offer], effects: &[home::Effect]) {
        for effect in effects {
            let home::Effect::Accepted { rid, progress, .. } = effect else { continue };
            let offer = offers.iter().find(|o| o.row.rid == *rid && Some(o.by) == o.owner);
            let offer = offer.unwrap_or_else(|| panic!("{rid}: words of a model that has no turn"));
            if let Some(progress) = progress {
                assert_eq!(offer.by.0, progress.model, "{rid}: another writer");
                assert!(offer.row.tokens.starts_with(&progress.tokens), "{rid}: other tokens");
            }
            self.cases[self.by_rid[rid]].check_source(offer.by, &offer.row);
        }
    }

    /// Invariants 1, 4 and 6, as far as a client can tell: each token once, in order, none after the end.
    pub(crate) fn check_home_effect(&mut self, home: usize, effect: &home::Effect) {
        match effect {
            home::Effect::Say { to, says } => {
                for word in &says.words {
                    if let HomeWord::Grant(grant) = word {
                        self.check_grant(home, *to, grant);
                    }
                }
            }
            home::Effect::Accepted { rid, progress, standing } => {
                let at = self.by_rid[rid];
                let case = &mut self.cases[at];
                assert_eq!(case.fate, Fate::Live(*rid), "progress of a request that is over");
                case.copy.standing = Some(standing.clone());
                if let Some(progress) = progress {
                    case.receive(*rid, progress);
                    self.moved(at);
                }
            }
            home::Effect::Done { rid, result } => {
                let case = &mut self.cases[self.by_rid[rid]];
                assert_eq!(case.fate, Fate::Live(*rid), "a request that ends twice");
                match result {
                    Ok(outcome) => {
                        case.fate = Fate::Done;
                        case.check_outcome(outcome, &self.plan.routes);
                    }
                    Err(Failure::Stalled { grants, .. }) => {
                        case.fate = Fate::Failed;
                        assert!(*grants >= self.plan.grants_max, "{rid} failed early");
                        assert!(self.plan.grants_max < GRANTS_MANY, "{rid} failed: never heard");
                    }
                    Err(failure) => panic!("{rid} failed: {failure}"),
                }
            }
        }
    }

    /// A grant speaks of committed tokens only, raises the turn, and builds on nothing that its life never said it holds.
    fn check_grant(&mut self, home: usize, to: ModelIx, grant: &PeerReq) {
        let rid = grant.rid;
        // A request may be over by the time the message is complete.
        let side = &mut self.homes[home];
        let Some(ledger) = side.home.ledger(rid) else { return };
        assert_eq!(grant.suffix[..], ledger.tokens()[grant.from as usize..], "{rid}: suffix");
        assert!(grant.from < ledger.committed(), "{rid}: nothing to feed");
        assert_eq!(grant.admission.is_some(), grant.from == 0, "{rid}: admission");
        let highest = &mut side.granted[to.index()];
        assert!(grant.life >= *highest, "{rid}: a grant to a life that is over");
        *highest = grant.life;
        if let Some(&case) = self.by_rid.get(&rid) {
            let case = &mut self.cases[case];
            assert!(grant.fence > case.fence, "{rid}: a turn twice");
            let held = case.held.get(&(to, grant.life)).copied().unwrap_or(0);
            assert!(grant.from <= held, "{rid}: an anchor that nobody reported");
            case.fence = grant.fence;
            case.proposal = grant.proposal.clone();
        }
    }

    /// Invariant 1 at home: what is committed is what the client has, and nothing of a finished request is left.
    pub(crate) fn check_home(&self, home: usize) {
        let home = &self.homes[home].home;
        home.check();
        for rid in home.requests() {
            let Some(ledger) = home.ledger(rid) else { continue };
            let case = &self.cases[self.by_rid[&rid]];
            assert_eq!(case.fate, Fate::Live(rid), "a request that came back");
            let committed = ledger.committed() as usize;
            assert_eq!(committed, case.tokens.len(), "{rid}: committed but not told");
            assert_eq!(ledger.tokens(), case.tokens, "{rid}: committed prefix");
            assert!(ledger.fence() >= case.fence, "{rid}: a turn taken back");
        }
    }

    /// The requests that are held under higher fences than this message speaks of them under, and those they are held
    /// under.
    pub(crate) fn fenced(&self, model: usize, says: &HomeSays) -> Vec<(RequestId, Fence)> {
        let mut highest = BTreeMap::new();
        for word in &says.words {
            let (HomeWord::Grant(PeerReq { rid, fence, .. })
            | HomeWord::Finish { rid, fence }
            | HomeWord::Probe { rid, fence }) = word;
            let known = highest.entry(*rid).or_insert(*fence);
            *known = *fence.max(known);
        }
        let held = |rid| self.hosts[model].host.resident(rid).map(|resident| resident.fence());
        let held = highest.into_iter().filter_map(|(rid, fence)| Some((rid, fence, held(rid)?)));
        held.filter(|(_, fence, held)| fence < held).map(|(rid, _, held)| (rid, held)).collect()
    }

    /// A grant is taken by the life it is for, or at least remembered, and by no other; nothing is taken under a lower
    /// fence.
    pub(crate) fn check_taken(
        &self,
        model: usize,
        granted: &[(RequestId, Fence, Life)],
        fenced: &[(RequestId, Fence)],
    ) {
        let HostSide { host, life: own, heard, .. } = &self.hosts[model];
        for &(rid, fence, life) in granted {
            let Some(resident) = host.resident(rid) else { continue };
            let held = resident.fence();
            assert!(held != fence || life == *own, "{rid}: a turn of another life");
            let late = heard.get(&rid.home).is_some_and(|heard| fence.home < *heard);
            assert!(held >= fence || life != *own || late, "{rid}: a turn that left no trace");
        }
        for &(rid, fence) in fenced {
            let held = host.resident(rid).map(|resident| resident.fence());
            assert_eq!(held, Some(fence), "{rid}: words of a turn that is over");
        }
    }

    /// Invariants 2, 3 and 5 at a model: fences only rise, its cache is what it says, and under the current turn that is
    /// the committed prefix and then its own offers. Whoever stops working says so; `stopped` are those that do now.
    pub(crate) fn check_host(&mut self, model: usize, stopped: &[(RequestId, Fence)]) {
        let side = &mut self.hosts[model];
        side.host.check();
        if !side.host.busy() {
            assert_eq!(side.host.blocks_used(), side.engine.blocks_used(), "blocks in use");
        }
        side.stood.retain(|rid, _| side.host.resident(*rid).is_some());
        for rid in side.host.requests() {
            let Some(resident) = side.host.resident(rid) else { continue };
            let (fence, phase) = (resident.fence(), resident.phase());
            let before = side.stood.insert(rid, (fence, phase));
            assert!(before.is_none_or(|(before, _)| before <= fence), "{rid}: a lower fence");
            if before.is_none_or(|(before, _)| before != fence) {
                let heard = side.heard.get(&rid.home).copied().unwrap_or_default();
                assert!(fence.home >= heard, "{rid}: a turn of a dead home");
            }
            if phase == Phase::Pending && before != Some((fence, phase)) {
                assert!(stopped.contains(&(rid, fence)), "{rid}: stopped and told nobody");
            }
            let history = resident.history();
            let cached = (resident.cached() as usize).min(history.len());
            if cached > 0 {
                let held = side.engine.tokens(side.sequences[&rid]);
                assert!(held.len() >= cached, "{rid}: the cache holds less than it is said to");
                assert_eq!(held[..cached], history[..cached], "{rid}: cache and history");
            }
            let ledger = self.homes[usize::from(rid.home.node)].home.ledger(rid);
            let Some(ledger) = ledger.filter(|l| l.fence() == fence) else { continue };
            assert_eq!(ledger.owner().index(), model, "{rid}: a turn of two owners");
            // A resident whose grant did not join keeps an older history until the next.
            if phase == Phase::Running {
                assert!(history.starts_with(ledger.tokens()), "{rid}: not the committed prefix");
                let case = &self.cases[self.by_rid[&rid]];
                if let Some(Reference { written, .. }) = &case.reference {
                    let offers = &history[case.copy.request.prompt.len()..];
                    let same = offers.iter().zip(written).all(|(own, (_, token))| own == token);
                    assert!(same, "{rid}: offers off the reference");
                }
            }
        }
    }

    /// Whether nothing is left to happen but the passing of time.
    pub(crate) fn at_rest(&self) -> bool {
        self.under_way == 0
            && self.now >= self.plan.faults.until
            && self.homes.iter().all(|side| side.home.live() == 0 && side.home.closing() == 0)
            && self.hosts.iter().all(|side| side.host.held() == 0 && !side.host.busy())
            && self.cases.iter().all(|case| case.over())
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
        for (number, HomeSide { home, .. }) in self.homes.iter().enumerate() {
            let (live, closing) = (home.live(), home.closing());
            let _ = write!(text, "; home {number}: {live} live, {closing} closing");
        }
        for (number, side) in self.hosts.iter().enumerate() {
            let (held, busy) = (side.host.held(), side.host.busy());
            let _ = write!(text, "; model {number}: {held} held, busy: {busy}");
        }
        for case in &self.cases {
            let _ = write!(text, "; {:?} at {} tokens", case.fate, case.written.len());
        }
        text
    }
}
