//! Where a Markov chain is found in the long run, for chains with few moves from each state.
//!
//! Only states to which the chain returns for ever matter: they form classes that are never left (Tarjan's algorithm finds
//! them). Within one, Gauss-Seidel sweeps solve `share = share · moves`. States are swept in reverse postorder of a depth-first
//! search, so that one sweep carries shares along whole paths and every state is reached from the first one within a sweep.
//! Since the first is also left and reached again, the sweeps converge for periodic chains as well, where repeated
//! multiplication would swing for ever.

/// When the shares change by less than this in a sweep, together, they are final.
const CHANGE_MAX: f64 = 1e-12;

/// After so many sweeps a solution is given up.
const SWEEPS_MAX: usize = 20_000;

/// Moves between states, with their odds; those of one state stand together.
#[derive(Clone, Debug, Default)]
pub(super) struct Moves {
    /// Where the moves of each state end.
    ends: Vec<usize>,
    to: Vec<u32>,
    odds: Vec<f64>,
}

/// States that are never left once one of them is reached.
#[derive(Clone, Debug)]
pub(super) struct Class {
    /// How likely the chain ends up here when it starts at state 0.
    pub(super) odds: f64,
    /// The states, in the order of the sweeps.
    pub(super) states: Vec<u32>,
    /// How much of all steps each state takes, in the same order; they add up to 1.
    pub(super) shares: Vec<f64>,
}

impl Moves {
    /// Adds a move to the last state.
    pub(super) fn push(&mut self, to: u32, odds: f64) {
        self.to.push(to);
        self.odds.push(odds);
    }

    /// The last state has no more moves.
    pub(super) fn end_state(&mut self) {
        self.ends.push(self.to.len());
    }

    /// How many moves there are.
    pub(super) fn len(&self) -> usize {
        self.to.len()
    }

    /// How many states there are.
    pub(super) fn states(&self) -> usize {
        self.ends.len()
    }

    /// The moves of a state: where to, and how likely.
    pub(super) fn of(&self, state: u32) -> impl Iterator<Item = (u32, f64)> + '_ {
        let range = self.range(state);
        self.to[range.clone()].iter().copied().zip(self.odds[range].iter().copied())
    }

    fn range(&self, state: u32) -> std::ops::Range<usize> {
        let state = state as usize;
        let start = if state == 0 { 0 } else { self.ends[state - 1] };
        start..self.ends[state]
    }
}

/// The classes that a chain which starts at state 0 can end up in, with the shares of their states. All states can be reached
/// from state 0. `None` where the sweeps do not come to rest.
pub(super) fn classes(moves: &Moves) -> Option<Vec<Class>> {
    let components = Components::of(moves);
    let mut classes = Vec::new();
    for states in components.closed(moves) {
        let shares = solve(moves, &states)?;
        classes.push(Class { odds: 1.0, states, shares });
    }
    if classes.len() > 1 {
        absorb(moves, &mut classes)?;
    }
    Some(classes)
}

/// The shares of the states of one class, by Gauss-Seidel sweeps.
fn solve(moves: &Moves, states: &[u32]) -> Option<Vec<f64>> {
    let mut place = vec![usize::MAX; moves.states()];
    for (i, &state) in states.iter().enumerate() {
        place[state as usize] = i;
    }
    // What comes into each state from others, and the odds to leave it: summed, since 1 less the odds to stay may cancel.
    let mut into: Vec<Vec<(u32, f64)>> = vec![Vec::new(); states.len()];
    let mut leave = vec![0.0; states.len()];
    for (i, &state) in states.iter().enumerate() {
        for (to, odds) in moves.of(state).filter(|(to, _)| *to != state) {
            into[place[to as usize]].push((i as u32, odds));
            leave[i] += odds;
        }
    }
    if states.len() == 1 {
        return Some(vec![1.0]);
    }
    let mut shares = vec![1.0 / states.len() as f64; states.len()];
    for _ in 0..SWEEPS_MAX {
        let (mut change, mut sum) = (0.0, 0.0);
        for (i, sources) in into.iter().enumerate() {
            let inflow: f64 =
                sources.iter().map(|&(from, odds)| shares[from as usize] * odds).sum();
            let share = inflow / leave[i];
            change += (share - shares[i]).abs();
            sum += share;
            shares[i] = share;
        }
        shares.iter_mut().for_each(|share| *share /= sum);
        if change < CHANGE_MAX * sum {
            return Some(shares);
        }
    }
    None
}

/// How likely each of several classes is: follows the odds from state 0 until next to nothing is outside of them.
fn absorb(moves: &Moves, classes: &mut [Class]) -> Option<()> {
    let mut class_of = vec![None; moves.states()];
    for (number, class) in classes.iter_mut().enumerate() {
        class.odds = 0.0;
        class.states.iter().for_each(|&state| class_of[state as usize] = Some(number));
    }
    let mut outside = vec![0.0; moves.states()];
    outside[0] = 1.0;
    for _ in 0..SWEEPS_MAX {
        let mut next = vec![0.0; moves.states()];
        for state in (0..moves.states()).filter(|&state| outside[state] > 0.0) {
            for (to, odds) in moves.of(state as u32) {
                match class_of[to as usize] {
                    Some(class) => classes[class].odds += outside[state] * odds,
                    None => next[to as usize] += outside[state] * odds,
                }
            }
        }
        outside = next;
        if outside.iter().sum::<f64>() < CHANGE_MAX {
            return Some(());
        }
    }
    None
}

/// The strongly connected components, by Tarjan's algorithm without recursion.
struct Components {
    /// Of each state: the number of its component.
    component: Vec<u32>,
    count: usize,
    /// The states in the order in which the search was done with them.
    finished: Vec<u32>,
}

/// A state is not in a component yet.
const NONE: u32 = u32::MAX;

impl Components {
    fn of(moves: &Moves) -> Self {
        let states = moves.states();
        let (mut seen, mut low) = (vec![NONE; states], vec![NONE; states]);
        let mut found = Self { component: vec![NONE; states], count: 0, finished: Vec::new() };
        let (mut stack, mut path): (Vec<u32>, Vec<(u32, usize)>) = (vec![0], vec![(0, 0)]);
        let mut clock = 1;
        (seen[0], low[0]) = (0, 0);
        while let Some((state, next)) = path.last_mut() {
            let at = *state as usize;
            let range = moves.range(*state);
            if let Some(&to) = moves.to[range].get(*next) {
                *next += 1;
                let to_at = to as usize;
                if seen[to_at] == NONE {
                    (seen[to_at], low[to_at]) = (clock, clock);
                    clock += 1;
                    stack.push(to);
                    path.push((to, 0));
                } else if found.component[to_at] == NONE {
                    low[at] = low[at].min(seen[to_at]);
                }
                continue;
            }
            path.pop();
            found.finished.push(at as u32);
            if let Some(&(parent, _)) = path.last() {
                low[parent as usize] = low[parent as usize].min(low[at]);
            }
            if low[at] == seen[at] {
                found.close(&mut stack, at as u32);
            }
        }
        found
    }

    /// Everything on the stack down to `root` is one component.
    fn close(&mut self, stack: &mut Vec<u32>, root: u32) {
        while let Some(state) = stack.pop() {
            self.component[state as usize] = self.count as u32;
            if state == root {
                break;
            }
        }
        self.count += 1;
    }

    /// The components that no move leaves, their states in reverse postorder.
    fn closed(&self, moves: &Moves) -> Vec<Vec<u32>> {
        let mut left = vec![false; self.count];
        for state in 0..moves.states() as u32 {
            let component = self.component[state as usize];
            if moves.of(state).any(|(to, _)| self.component[to as usize] != component) {
                left[component as usize] = true;
            }
        }
        let mut closed = vec![Vec::new(); self.count];
        for &state in self.finished.iter().rev() {
            let component = self.component[state as usize] as usize;
            if !left[component] {
                closed[component].push(state);
            }
        }
        closed.retain(|states| !states.is_empty());
        closed
    }
}

#[cfg(test)]
mod tests;
