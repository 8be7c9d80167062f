//! What a request must come to: its policy interpreted in a straight line, with nothing lost, nobody else around, and
//! no machine of the protocol in between.

use crate::world::engine::{Chain, sample};
use tokenrouter_policies::{
    Aux, JustSampled, ModelIx, Patterns, PolicyState, Position, Proposal, Signals, StepView,
    TextFacts, Token, Verdict,
};
use tokenrouter_protocol::{Finish, Request, Route, Sampled};

/// The whole reply.
#[derive(Clone, Debug)]
pub(crate) struct Reference {
    /// The tokens and who wrote each.
    pub(crate) written: Vec<(ModelIx, Token)>,
    /// What the client reads.
    pub(crate) text: String,
    /// Why it ends.
    pub(crate) finish: Finish,
}

/// The reply to `request` on `route`.
pub(crate) fn interpret(request: &Request, route: &Route) -> Reference {
    let mut reply = Reply::new(request, route);
    let mut state = PolicyState::default();
    let mut owner = route.first_owner(&request.draws, request.prompt.len() as Position);
    let (mut proposal, mut aux) = (Vec::new(), Aux::new());
    loop {
        let accepted = reply.judge(owner, &proposal, &aux, &mut state);
        for token in proposal.drain(..).take(accepted) {
            if let Some(finish) = reply.commit(owner, token) {
                return reply.end(finish);
            }
        }
        aux = Aux::new();
        let sampled = reply.sample(owner, &[]);
        let view = reply.view(owner, 0, &sampled, reply.facts(sampled.token));
        let verdict = route.policy.route(&view, &mut state);
        let (to, fate) = match verdict {
            Verdict::Handoff { to, just_sampled } if to != owner => (Some(to), just_sampled),
            _ => (None, JustSampled::Commit),
        };
        if let Some(to) = to {
            aux = route.policy.send(&view, to, &state);
        }
        match fate {
            JustSampled::Commit => {
                if let Some(finish) = reply.commit(owner, sampled.token) {
                    return reply.end(finish);
                }
            }
            JustSampled::Discard => {}
            JustSampled::Propose => proposal.push(sampled.token),
        }
        owner = to.unwrap_or(owner);
    }
}

/// The reply that these tokens are; `None` where they do not come to an end, or go on after it.
pub(crate) fn read(
    request: &Request,
    route: &Route,
    written: &[(ModelIx, Token)],
) -> Option<Reference> {
    let mut reply = Reply::new(request, route);
    for (at, &(model, token)) in written.iter().enumerate() {
        if let Some(finish) = reply.commit(model, token) {
            return (at + 1 == written.len()).then(|| reply.end(finish));
        }
    }
    None
}

struct Reply<'a> {
    request: &'a Request,
    route: &'a Route,
    tokens: Vec<Token>,
    chain: Chain,
    written: Vec<(ModelIx, Token)>,
    bytes: Vec<u8>,
}

impl<'a> Reply<'a> {
    fn new(request: &'a Request, route: &'a Route) -> Self {
        let tokens = request.prompt.clone();
        let chain = tokens.iter().fold(Chain::default(), |chain, &token| chain.and(token));
        Self { request, route, tokens, chain, written: Vec::new(), bytes: Vec::new() }
    }

    fn position(&self) -> Position {
        self.tokens.len() as Position
    }

    /// What `model` samples after the reply so far and `more`.
    fn sample(&self, model: ModelIx, more: &[Token]) -> Sampled {
        let chain = more.iter().fold(self.chain, |chain, &token| chain.and(token));
        let position = self.position() + more.len() as Position;
        let mut sampled = sample(model, chain, &self.request.draws, (position, 0));
        if !self.route.policy.needs(model).entropy {
            sampled.signals = Signals::default();
        }
        sampled
    }

    fn judge(
        &self,
        model: ModelIx,
        proposed: &[Token],
        aux: &[u8],
        state: &mut PolicyState,
    ) -> usize {
        if proposed.is_empty() {
            return 0;
        }
        let sampled: Vec<Sampled> =
            (0..proposed.len()).map(|at| self.sample(model, &proposed[..at])).collect();
        let own: Vec<StepView<'_>> = (0..)
            .zip(&sampled)
            .map(|(at, sampled)| self.view(model, at, sampled, TextFacts::default()))
            .collect();
        self.route.policy.receive(&Proposal { tokens: proposed, own: &own, aux }, state)
    }

    fn view<'s>(
        &'s self,
        model: ModelIx,
        ahead: Position,
        sampled: &'s Sampled,
        text: TextFacts,
    ) -> StepView<'s> {
        StepView {
            model,
            position: self.position() + ahead,
            prompt: self.request.prompt.len() as Position,
            token: sampled.token,
            bytes: self.route.vocabulary.bytes(sampled.token),
            signals: &sampled.signals,
            text,
            draws: self.request.draws,
        }
    }

    /// Facts about the text with `token`, found by comparing strings at every byte.
    fn facts(&self, token: Token) -> TextFacts {
        let patterns = self.route.policy.patterns();
        if patterns.is_empty() {
            return TextFacts::default();
        }
        let vocabulary = &self.route.vocabulary;
        let before: Vec<u8> =
            self.tokens.iter().flat_map(|&t| vocabulary.bytes(t)).copied().collect();
        let whole = [before.as_slice(), vocabulary.bytes(token)].concat();
        let ends = |end: usize, pattern: &String| whole[..end].ends_with(pattern.as_bytes());
        let mut facts = TextFacts::default();
        for end in 1..=whole.len() {
            for (index, _) in patterns.iter().enumerate().filter(|(_, p)| ends(end, p)) {
                match end <= before.len() {
                    true => facts.latest = Some(index as u8),
                    false => facts.completed = Patterns(facts.completed.0 | 1 << index),
                }
            }
        }
        facts
    }

    /// Commits one token; why the reply ends with it.
    fn commit(&mut self, model: ModelIx, token: Token) -> Option<Finish> {
        let vocabulary = &self.route.vocabulary;
        self.tokens.push(token);
        self.chain = self.chain.and(token);
        self.written.push((model, token));
        let shown = self.bytes.len();
        self.bytes.extend_from_slice(vocabulary.visible(token));
        let stop = self.stop(shown);
        if !self.request.ignore_eos && vocabulary.ends(token) {
            return Some(Finish::Eos(token));
        }
        if let Some(stop) = stop {
            return Some(Finish::Stop(stop));
        }
        let full = self.written.len() as Position == self.request.max_tokens;
        full.then_some(Finish::Length)
    }

    /// The stop string that ends first beyond `shown`, the longest of several; the text is cut before it.
    fn stop(&mut self, shown: usize) -> Option<String> {
        for end in shown + 1..=self.bytes.len() {
            let hits =
                self.request.stop.iter().filter(|s| self.bytes[..end].ends_with(s.as_bytes()));
            if let Some(hit) = hits.max_by_key(|s| s.len()) {
                self.bytes.truncate(end - hit.len());
                return Some(hit.clone());
            }
        }
        None
    }

    fn end(self, finish: Finish) -> Reference {
        let text = String::from_utf8_lossy(&self.bytes).into_owned();
        Reference { written: self.written, text, finish }
    }
}
