//! Policies that exist for tests: they use every way in which a token, a word of state or a byte can travel.

use smallvec::{SmallVec, smallvec};
use tokenrouter_policies::{
    Aux, Draws, JustSampled, ModelIx, Policy, PolicyState, Position, Proposal, Purpose, SignalSet,
    StepView, Verdict,
};

/// Draws the model of every token; every edge commits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draw {
    /// How many models take part, from the first.
    pub(crate) models: u8,
}

impl Draw {
    fn model(&self, uniform: f64) -> ModelIx {
        ModelIx((uniform * f64::from(self.models)) as u8)
    }
}

impl Policy for Draw {
    fn needs(&self, _at: ModelIx) -> SignalSet {
        SignalSet::NONE
    }

    fn route(&self, step: &StepView<'_>, _state: &mut PolicyState) -> Verdict {
        Verdict::Handoff { to: self.model(step.draw_next()), just_sampled: JustSampled::Commit }
    }

    fn models(&self) -> SmallVec<[ModelIx; 4]> {
        (0..self.models).map(ModelIx).collect()
    }

    fn entry(&self, draws: &Draws, position: Position) -> Option<ModelIx> {
        Some(self.model(draws.uniform(position, Purpose::Route)))
    }
}

/// Proposes tokens to the next model, which takes those it likes; a word of state and a few bytes travel along, and
/// decide or are compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Propose {
    /// The chance of each position to be proposed.
    pub(crate) probability: f64,
}

/// Word 0 counts the steps routed, word 1 the tokens accepted.
impl Policy for Propose {
    fn needs(&self, _at: ModelIx) -> SignalSet {
        SignalSet::NONE
    }

    fn route(&self, step: &StepView<'_>, state: &mut PolicyState) -> Verdict {
        state.set_word(0, state.word(0) + 1);
        let next = ModelIx((step.model.0 + 1) % 3);
        let patient = (state.word(0) + state.word(1)).is_multiple_of(3);
        match step.draw() < self.probability {
            true => Verdict::Handoff { to: next, just_sampled: JustSampled::Propose },
            false if patient => Verdict::Handoff { to: next, just_sampled: JustSampled::Commit },
            false => Verdict::Stay,
        }
    }

    fn models(&self) -> SmallVec<[ModelIx; 4]> {
        smallvec![ModelIx(0), ModelIx(1), ModelIx(2)]
    }

    fn send(&self, step: &StepView<'_>, to: ModelIx, state: &PolicyState) -> Aux {
        // Beyond 32 bytes the bytes are no longer inline.
        let long = if step.token.is_multiple_of(5) { 40 } else { 0 };
        let mut aux = Aux::from_slice(&[step.token as u8, to.0, state.word(0) as u8]);
        aux.resize(aux.len() + long, 7);
        aux
    }

    fn receive(&self, proposal: &Proposal<'_>, state: &mut PolicyState) -> usize {
        let own = &proposal.own[0];
        let sent = [proposal.tokens[0] as u8, own.model.0, state.word(0) as u8];
        assert_eq!(proposal.aux[..3], sent, "bytes of another handoff");
        let like = |(token, own): &(&u32, &StepView<'_>)| *token % 2 == own.token % 2;
        let accepted = proposal.tokens.iter().zip(proposal.own).take_while(like).count();
        state.set_word(1, state.word(1) + accepted as u64);
        accepted
    }
}

/// Goes by facts about the text: the large model writes from an unsure step to the next delimiter, and everything after
/// a closing tag that follows no delimiter.
#[derive(Clone, Debug)]
pub(crate) struct Stepwise {
    patterns: [String; 2],
    threshold: f32,
}

impl Stepwise {
    /// Hands over above `threshold`.
    pub(crate) fn new(threshold: f32) -> Self {
        Self { patterns: ["\n\n".to_owned(), "</t>".to_owned()], threshold }
    }
}

const ENTRY: ModelIx = ModelIx(0);
const LARGE: ModelIx = ModelIx(2);

impl Policy for Stepwise {
    fn needs(&self, at: ModelIx) -> SignalSet {
        SignalSet { entropy: at == ENTRY, ..SignalSet::NONE }
    }

    fn route(&self, step: &StepView<'_>, _state: &mut PolicyState) -> Verdict {
        if step.model == LARGE {
            return match step.text.completed.contains(0) && step.text.latest != Some(1) {
                true => Verdict::Handoff { to: ENTRY, just_sampled: JustSampled::Commit },
                false => Verdict::Stay,
            };
        }
        if step.text.completed.contains(1) {
            return Verdict::Handoff { to: LARGE, just_sampled: JustSampled::Commit };
        }
        if step.entropy_normalised() > self.threshold {
            return Verdict::Handoff { to: LARGE, just_sampled: JustSampled::Discard };
        }
        Verdict::Stay
    }

    fn models(&self) -> SmallVec<[ModelIx; 4]> {
        smallvec![ENTRY, LARGE]
    }

    fn patterns(&self) -> &[String] {
        &self.patterns
    }
}
