//! What R2R's strategies remember of the positions before: a moving average, or a window.

use crate::state::PolicyState;

/// Steps the moving average of "simple" and says whether to hand over. Word 0 is the average, word 1 whether the entry
/// model wrote last: a request begins as if the other had.
pub(super) fn momentum(simple: bool, state: &mut PolicyState) -> bool {
    const LOW: f64 = 0.3;
    const HIGH: f64 = 0.7;
    let average = 0.7 * state.number(0) + if simple { 0.3 } else { 0.0 };
    let entry_wrote = state.word(1) == 1;
    let hands_over = average <= if entry_wrote { LOW } else { HIGH };
    state.set_number(0, average);
    state.set_word(1, u64::from(!hands_over));
    hands_over
}

/// The window over the last three values at one position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// Whether the position hands over if nothing is open.
    pub(super) opens: bool,
    /// Whether the value that opens is the first of the window.
    pub(super) includes_opening: bool,
}

impl Window {
    const LENGTH: u64 = 3;

    /// Whether to hand over. Word 0 is 0 while nothing is open, otherwise one more than the values in the window, which
    /// follow it.
    pub(super) fn step(self, value: f64, threshold: f64, state: &mut PolicyState) -> bool {
        if state.word(0) == 0 {
            if self.opens {
                state.set_word(0, 1);
            }
            if self.opens && self.includes_opening {
                push(value, state);
            }
            return self.opens;
        }
        push(value, state);
        let count = state.word(0) - 1;
        let sum: f64 = (1..=count as usize).map(|index| state.number(index)).sum();
        let holds = sum / count as f64 >= threshold;
        if !holds {
            *state = PolicyState::default();
        }
        holds
    }
}

fn push(value: f64, state: &mut PolicyState) {
    let count = (state.word(0) - 1).min(Window::LENGTH - 1);
    if state.word(0) > Window::LENGTH {
        for index in 1..Window::LENGTH as usize {
            state.set_word(index, state.word(index + 1));
        }
    }
    state.set_number(count as usize + 1, value);
    state.set_word(0, count + 2);
}
