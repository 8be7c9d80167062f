//! Frames that no node would send: valid ones with bits turned, cut, lengthened and joined, and noise. Whatever comes out of
//! the decoder comes out without a panic.

use smallvec::smallvec;
use tokenrouter_policies::{Aux, Draws, ModelIx, PolicyState};
use tokenrouter_protocol::{
    Admission, Fence, HomeId, HomeSays, HomeWord, Life, ModelSays, ModelWord, Parcel, PeerReq,
    ReportRow, RequestId, RouteIx, RowOutcome, Sampling, Tokens,
};
use tokenrouter_transport::wire;

/// What a frame holds: what was heard, its number, its parcels.
type Frame = ([u64; 2], u64, Vec<Parcel>);

/// How the decoder fared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fared {
    /// Inputs that were frames all the same.
    pub accepted: u64,
    /// Inputs that were none.
    pub refused: u64,
}

/// Feeds `inputs` frames to the decoder, the same for the same seed.
///
/// # Panics
/// When what was decoded does not come back from being encoded.
pub fn frames(inputs: u64, seed: u64) -> Fared {
    let valid = valid();
    let mut random = Random(seed);
    let mut fared = Fared::default();
    for _ in 0..inputs {
        let input = random.frame(&valid);
        match wire::decode::<Frame>(&input) {
            Ok(frame) => {
                fared.accepted += 1;
                let again = wire::encode(&frame).unwrap();
                // Compared as text, since a number that is none equals nothing.
                let decoded = wire::decode::<Frame>(&again).unwrap();
                assert_eq!(format!("{decoded:?}"), format!("{frame:?}"));
            }
            Err(_) => fared.refused += 1,
        }
    }
    fared
}

/// Frames with one of everything in them.
fn valid() -> Vec<Vec<u8>> {
    let home = HomeId { node: 1, model: ModelIx(0) };
    let life = Life { process: 1_764_518_400_000_000_000, restarts: 3 };
    let rid = RequestId { home, born: life, number: 300 };
    let fence = Fence { home: life, turn: 70_000 };
    let admission = Admission {
        route: RouteIx(4),
        prompt: 3,
        length_max: 99,
        sampling: Sampling { temperature: 0.8, top_p: 0.9, top_k: 40, min_p: 0.05 },
        draws: Draws::new(u64::MAX, 2),
        ignore_eos: true,
    };
    let mut state = PolicyState::default();
    state.set_number(2, 0.25);
    let grant = PeerReq {
        rid,
        fence,
        life,
        from: 0,
        suffix: Tokens::from_vec((0..40).map(|t| t * 999).collect()),
        proposal: smallvec![5],
        aux: Aux::from_slice(b"aux"),
        state: state.clone(),
        admission: Some(Box::new(admission)),
    };
    let row = |outcome| {
        let (tokens, state) = (smallvec![1], state.clone());
        let (cached, computed, generated) = (9, 1, 2);
        ModelWord::Row(ReportRow {
            rid,
            fence,
            start: 9,
            tokens,
            cached,
            outcome,
            state,
            computed,
            generated,
        })
    };
    let next = RowOutcome::Next { to: ModelIx(0), aux: Aux::new(), proposal: smallvec![9, 9] };
    let finish = HomeWord::Finish { rid, fence };
    let words = smallvec![HomeWord::Grant(grant), finish, HomeWord::Probe { rid, fence }];
    let says = HomeSays { home, life, number: 9, live: 3, words };
    let down = Parcel::ToModel { to: ModelIx(1), says };
    let words = smallvec![
        row(RowOutcome::Going),
        row(next),
        ModelWord::Missing { rid, fence, have: 4 },
        ModelWord::Holding { rid, fence: Some(fence), working: None, probe: Some(fence) },
        ModelWord::DoorLost,
    ];
    let up = Parcel::ToHome { to: home, says: ModelSays { model: ModelIx(1), life, words } };
    let frames: [Frame; 3] = [
        ([7, 0], 300, vec![down.clone()]),
        ([1, 2], 3, vec![up.clone(), down]),
        ([0, 9], 0, vec![]),
    ];
    frames.iter().map(|frame| wire::encode(frame).unwrap()).collect()
}

struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % below.max(1)
    }

    fn frame(&mut self, valid: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = valid[self.next(valid.len())].clone();
        for _ in 0..1 + self.next(4) {
            let at = self.next(bytes.len() + 1);
            match self.next(6) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, self.next(256) as u8),
                2 => bytes.extend_from_slice(&valid[self.next(valid.len())]),
                3 => bytes = (0..at).map(|_| self.next(256) as u8).collect(),
                4 if at < bytes.len() => drop(bytes.remove(at)),
                _ if at < bytes.len() => bytes[at] ^= 1 << self.next(8),
                _ => {}
            }
        }
        bytes
    }
}
