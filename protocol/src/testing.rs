//! What the table tests of all machines share: a vocabulary in which letters are tokens, a policy made of functions, and
//! short names for what every test needs.

use crate::home::Time;
use crate::id::{Fence, HomeId, Life, RequestId};
use crate::message::{ReportRow, RowOutcome};
use crate::request::{Request, RouteIx};
use crate::route::Route;
use crate::step::{Sampling, Tokens};
use crate::text::{Piece, Vocabulary};
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;
use tokenrouter_policies::{
    Aux, Draws, Hidden, JustSampled, ModelIx, Policy, PolicyState, Proposal, SignalSet, StepView,
    Token, Verdict,
};

/// Ends a reply; hidden.
pub(crate) const EOS: Token = 128;
/// The text `ab`.
pub(crate) const AB: Token = 129;
/// The text `\n\n`.
pub(crate) const BLANK: Token = 130;
/// The two halves of `é`.
pub(crate) const HALVES: [Token; 2] = [131, 132];
/// The text `\n\n</t>`.
pub(crate) const BLANK_TAG: Token = 133;
/// The text `</t>\n\n`.
pub(crate) const TAG_BLANK: Token = 134;

/// The first three models.
pub(crate) const SMALL: ModelIx = ModelIx(0);
pub(crate) const LARGE: ModelIx = ModelIx(1);
pub(crate) const OTHER: ModelIx = ModelIx(2);

/// A policy that only small functions tell from others.
#[derive(Clone, Debug)]
pub(crate) struct By {
    pub(crate) route: fn(&StepView<'_>, &mut PolicyState) -> Verdict,
    pub(crate) receive: fn(&Proposal<'_>, &mut PolicyState) -> usize,
    pub(crate) patterns: Vec<String>,
    pub(crate) hidden: Vec<Hidden>,
}

impl By {
    /// A policy that always goes on.
    pub(crate) fn staying() -> Self {
        Self {
            route: |_, _| Verdict::Stay,
            receive: |_, _| 0,
            patterns: Vec::new(),
            hidden: Vec::new(),
        }
    }

    /// A policy that routes by this.
    pub(crate) fn routing(route: fn(&StepView<'_>, &mut PolicyState) -> Verdict) -> Self {
        Self { route, ..Self::staying() }
    }
}

impl Policy for By {
    fn needs(&self, _at: ModelIx) -> SignalSet {
        SignalSet::NONE
    }

    fn route(&self, step: &StepView<'_>, state: &mut PolicyState) -> Verdict {
        (self.route)(step, state)
    }

    fn models(&self) -> SmallVec<[ModelIx; 4]> {
        SmallVec::from_slice(&[SMALL, LARGE])
    }

    fn patterns(&self) -> &[String] {
        &self.patterns
    }

    fn hidden(&self) -> &[Hidden] {
        &self.hidden
    }

    fn send(&self, step: &StepView<'_>, _to: ModelIx, _state: &PolicyState) -> Aux {
        Aux::from_slice(&[step.token as u8])
    }

    fn receive(&self, proposal: &Proposal<'_>, state: &mut PolicyState) -> usize {
        (self.receive)(proposal, state)
    }
}

/// A handoff to the large model.
pub(crate) fn to_large(just_sampled: JustSampled) -> Verdict {
    Verdict::Handoff { to: LARGE, just_sampled }
}

/// A route of the small and the large model, entered at the small one.
pub(crate) fn route(policy: By) -> Route {
    let letter = |byte: u8| Piece { bytes: vec![byte], visible: true };
    let word = |bytes: &[u8]| Piece { bytes: bytes.to_vec(), visible: true };
    let mut pieces: Vec<Piece> = (0..128).map(letter).collect();
    pieces.push(Piece { bytes: b"<eos>".to_vec(), visible: false });
    pieces.extend([word(b"ab"), word(b"\n\n"), word(&[0xc3]), word(&[0xa9])]);
    pieces.extend([word(b"\n\n</t>"), word(b"</t>\n\n")]);
    Route::new(SMALL, Arc::new(policy), Arc::new(Vocabulary::new(pieces, vec![EOS])))
}

/// A token for each letter.
pub(crate) fn letters(text: &str) -> Vec<Token> {
    text.bytes().map(Token::from).collect()
}

/// A request for twenty tokens after `prompt`.
pub(crate) fn request(prompt: &str) -> Request {
    Request {
        route: RouteIx(0),
        prompt: letters(prompt),
        max_tokens: 20,
        sampling: Sampling::GREEDY,
        draws: Draws::new(1, 0),
        stop: Vec::new(),
        ignore_eos: false,
    }
}

/// The `restarts`-th restart of the one process.
pub(crate) fn life(restarts: u32) -> Life {
    Life { process: 1, restarts }
}

/// The one home.
pub(crate) const HOME: HomeId = HomeId { node: 0, model: SMALL };

/// Request `number` of the home's first life.
pub(crate) fn rid(number: u64) -> RequestId {
    RequestId { home: HOME, born: life(0), number }
}

/// Turn `turn` of the home's first life.
pub(crate) fn fence(turn: u32) -> Fence {
    Fence { home: life(0), turn }
}

/// A time in milliseconds.
pub(crate) fn ms(milliseconds: u64) -> Time {
    Duration::from_millis(milliseconds)
}

/// A row as an owner would word it, for a cache that covers everything before `start`.
pub(crate) fn row(
    rid: RequestId,
    fence: Fence,
    start: u32,
    tokens: &[Token],
    outcome: RowOutcome,
) -> ReportRow {
    ReportRow {
        rid,
        fence,
        start,
        tokens: Tokens::from_slice(tokens),
        cached: start,
        outcome,
        state: PolicyState::default(),
        computed: 1,
        generated: tokens.len() as u32,
    }
}

/// A handoff with nothing along.
pub(crate) fn next(to: ModelIx) -> RowOutcome {
    RowOutcome::Next { to, aux: Aux::new(), proposal: Tokens::new() }
}
