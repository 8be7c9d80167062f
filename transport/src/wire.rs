//! Messages as bytes: bincode behind two functions, so that nothing else knows the format.
//!
//! Integers are of variable length, so a short handoff stays short. A frame over [`FRAME_MAX`] is refused on both sides,
//! before anything is allocated for it.

use bincode::config::{Configuration, Limit, LittleEndian, Varint};
use bincode::error::{DecodeError, EncodeError};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Largest frame in bytes: a prompt of a million tokens fits.
pub const FRAME_MAX: usize = 8 << 20;

const FORMAT: Configuration<LittleEndian, Varint, Limit<FRAME_MAX>> =
    bincode::config::standard().with_limit::<FRAME_MAX>();

/// Why a message is no frame, or a frame no message.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The message cannot be encoded.
    #[error("cannot encode the message: {0}")]
    Encode(#[from] EncodeError),
    /// The message is too large.
    #[error("the message has {bytes} bytes; a frame holds at most {FRAME_MAX}")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// The bytes are not a message of this version.
    #[error("cannot decode the frame: {0}")]
    Decode(#[from] DecodeError),
    /// The message ends before the frame does.
    #[error("{bytes} bytes follow the message in its frame")]
    Trailing {
        /// How many.
        bytes: usize,
    },
}

/// The frame of a message.
///
/// # Errors
/// [`Error::TooLarge`] over [`FRAME_MAX`].
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, Error> {
    let frame = bincode::serde::encode_to_vec(message, FORMAT)?;
    if frame.len() > FRAME_MAX {
        return Err(Error::TooLarge { bytes: frame.len() });
    }
    Ok(frame)
}

/// The message of a frame; the whole frame must be used.
///
/// # Errors
/// When the bytes are not such a message. Never panics, whatever they are.
pub fn decode<T: DeserializeOwned>(frame: &[u8]) -> Result<T, Error> {
    if frame.len() > FRAME_MAX {
        return Err(Error::TooLarge { bytes: frame.len() });
    }
    let (message, used) = bincode::serde::decode_from_slice(frame, FORMAT)?;
    if used < frame.len() {
        return Err(Error::Trailing { bytes: frame.len() - used });
    }
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use smallvec::{SmallVec, smallvec};
    use tokenrouter_policies::{Aux, Draws, ModelIx, PolicyState};
    use tokenrouter_protocol::{
        Admission, Fence, HomeId, HomeSays, HomeWord, Life, ModelSays, ModelWord, Parcel, PeerReq,
        ReportRow, RequestId, RouteIx, RowOutcome, Sampling, Tokens,
    };

    fn parcels() -> Vec<Parcel> {
        let home = HomeId { node: 0, model: ModelIx(1) };
        let life = Life { process: 1_764_518_400_000_000_000, restarts: 3 };
        let rid = RequestId { home, born: life, number: 300 };
        let fence = Fence { home: life, turn: 70_000 };
        let mut state = PolicyState::default();
        state.set_number(2, 0.25);
        let admission = Admission {
            route: RouteIx(4),
            prompt: 3,
            length_max: 99,
            sampling: Sampling { temperature: 0.8, top_p: 0.9, top_k: 40, min_p: 0.05 },
            draws: Draws::new(u64::MAX, 2),
            ignore_eos: true,
        };
        let grant = |from, suffix: &[u32], admission| PeerReq {
            rid,
            fence,
            life,
            from,
            suffix: Tokens::from_slice(suffix),
            proposal: smallvec![5],
            aux: Aux::from_slice(b"aux"),
            state: state.clone(),
            admission,
        };
        let words: SmallVec<[HomeWord; 1]> = smallvec![
            HomeWord::Grant(grant(0, &[1, 2, 3, 4, 5, 6], Some(Box::new(admission)))),
            HomeWord::Grant(grant(7, &[511], None)),
            HomeWord::Finish { rid, fence },
            HomeWord::Probe { rid, fence },
        ];
        let row = |outcome| {
            ModelWord::Row(ReportRow {
                rid,
                fence,
                start: 9,
                tokens: smallvec![1],
                cached: 9,
                outcome,
                state: state.clone(),
                computed: 1,
                generated: 2,
            })
        };
        let next = RowOutcome::Next { to: ModelIx(0), aux: Aux::new(), proposal: smallvec![9, 9] };
        let answers: SmallVec<[ModelWord; 1]> = smallvec![
            row(RowOutcome::Going),
            row(next),
            row(RowOutcome::Ended),
            ModelWord::Missing { rid, fence, have: 4 },
            ModelWord::Closed { rid },
            ModelWord::Holding { rid, fence: Some(fence), working: None, probe: Some(fence) },
            ModelWord::Reborn,
        ];
        vec![
            Parcel::ToModel {
                to: ModelIx(0),
                says: HomeSays { home, life, number: 9, live: 3, words },
            },
            Parcel::ToHome {
                to: home,
                says: ModelSays { model: ModelIx(0), life, words: answers },
            },
        ]
    }

    #[test]
    fn every_message_comes_back_as_it_was() {
        for parcel in parcels() {
            let frame = encode(&parcel).unwrap();
            assert_eq!(decode::<Parcel>(&frame).unwrap(), parcel);
        }
    }

    #[test]
    fn a_cut_or_lengthened_frame_is_refused() {
        for parcel in parcels() {
            let mut frame = encode(&parcel).unwrap();
            for length in 0..frame.len() {
                assert!(decode::<Parcel>(&frame[..length]).is_err(), "cut to {length}");
            }
            frame.push(0);
            assert!(matches!(decode::<Parcel>(&frame), Err(Error::Trailing { bytes: 1 })));
        }
    }

    #[test]
    fn rubbish_is_refused_without_a_panic() {
        let mut seed = 1u64;
        for _ in 0..20_000 {
            let mut frame = encode(&parcels()[(seed % 2) as usize]).unwrap();
            for _ in 0..4 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = (seed >> 33) as usize % frame.len();
                frame[at] = (seed >> 20) as u8;
            }
            // Whatever comes out, it came out without a panic or an absurd allocation.
            drop(decode::<Parcel>(&frame));
        }
    }

    #[test]
    fn a_length_beyond_the_limit_allocates_nothing() {
        // A vector that claims 2^60 elements.
        let frame = [253, 0, 0, 0, 0, 0, 0, 0, 0x10, 1, 2, 3];
        assert!(decode::<Vec<u64>>(&frame).is_err());
        // Found by the fuzzer: words that claim 2^54 of their kind, in a parcel that is one up to there.
        let parcel = parcels().remove(0);
        let Parcel::ToModel { says, .. } = &parcel else { unreachable!() };
        let whole = encode(&parcel).unwrap();
        let mut frame = whole[..whole.len() - encode(&says.words).unwrap().len()].to_vec();
        frame.extend([253, 0, 0, 0, 0, 0, 0, 0, 0x40, 1, 2, 3]);
        assert!(matches!(decode::<Parcel>(&frame), Err(Error::Decode(_))));
    }
}
