//! Tables for a channel: connections that break anywhere lose nothing and say nothing twice, and what breaks one.

use super::*;
use smallvec::smallvec;
use tokenrouter_policies::{Aux, ModelIx, PolicyState};
use tokenrouter_protocol::{Fence, HomeId, Life, ModelSays, PeerReq, RequestId, Tokens};

const HOME: HomeId = HomeId { node: 0, model: ModelIx(0) };

fn rid(number: u64) -> RequestId {
    RequestId { home: HOME, born: Life::default(), number }
}

/// What a home says to a model, by its number.
fn parcel(number: u64, words: &[HomeWord]) -> Parcel {
    let words = words.iter().cloned().collect();
    let says = HomeSays { home: HOME, life: Life::default(), number, live: 1, words };
    Parcel::ToModel { to: ModelIx(1), says }
}

fn finish(number: u64) -> Parcel {
    let fence = Fence::default();
    parcel(number, &[HomeWord::Finish { rid: rid(number), fence }])
}

fn grant(number: u64, suffix: usize) -> Parcel {
    let grant = PeerReq {
        rid: rid(number),
        fence: Fence::default(),
        life: Life::default(),
        from: 0,
        suffix: Tokens::from_vec(vec![7; suffix]),
        proposal: Tokens::new(),
        aux: Aux::new(),
        state: PolicyState::default(),
        admission: None,
    };
    parcel(number, &[HomeWord::Grant(grant)])
}

fn probe(number: u64) -> Parcel {
    parcel(number, &[HomeWord::Probe { rid: rid(number), fence: Fence::default() }])
}

fn number(parcel: &Parcel) -> u64 {
    let Parcel::ToModel { says, .. } = parcel else { panic!("{parcel:?}") };
    says.number
}

/// Both ends of a channel, in these lives.
fn ends(a: u64, b: u64) -> (Channel, Channel) {
    (Channel::new(a), Channel::new(b))
}

/// A new connection; whether each end goes on.
fn connect(a: &mut Channel, b: &mut Channel) -> (bool, bool) {
    let (from_a, from_b) = (a.hello("a", 7), b.hello("b", 7));
    (a.begin(&from_a, &from_b).unwrap(), b.begin(&from_b, &from_a).unwrap())
}

/// Carries frames over; the numbers of the parcels that come out.
fn carry(frames: impl IntoIterator<Item = (Stream, Bytes)>, to: &mut Channel) -> Vec<u64> {
    let take = |(stream, bytes): (Stream, Bytes)| to.take(stream, &bytes).unwrap();
    frames.into_iter().flat_map(take).map(|parcel| number(&parcel)).collect()
}

#[test]
fn a_connection_that_breaks_anywhere_loses_nothing_and_says_nothing_twice() {
    // How many of five frames arrive, and of the acknowledgements how many.
    for arrived in 0..=5usize {
        for told in [false, true] {
            let (mut a, mut b) = ends(1, 2);
            assert_eq!(connect(&mut a, &mut b), (false, false));
            let mut frames = Vec::new();
            for number in 1..=5 {
                a.put(finish(number));
                frames.extend(a.seal().unwrap());
            }
            let mut heard = carry(frames.into_iter().take(arrived), &mut b);
            if told && let Some(bytes) = b.acknowledgement() {
                assert!(a.take(Stream::Express, &bytes).unwrap().is_empty());
            }
            assert_eq!(connect(&mut a, &mut b), (true, true));
            heard.extend(carry(a.unheard(), &mut b));
            assert_eq!(heard, [1, 2, 3, 4, 5], "{arrived} arrived, told: {told}");
        }
    }
}

#[test]
fn a_new_life_of_an_end_goes_on_with_what_the_other_still_keeps() {
    let (mut a, mut b) = ends(1, 2);
    connect(&mut a, &mut b);
    for number in 1..=3 {
        a.put(finish(number));
        let frames = a.seal().unwrap();
        if number == 1 {
            carry(frames, &mut b);
        }
    }
    a.take(Stream::Express, &b.acknowledgement().unwrap()).unwrap();
    // Frames of it were heard by then, so that what is kept was sealed after hearing something.
    b.put(finish(8));
    assert_eq!(carry(b.seal().unwrap(), &mut a), [8]);
    a.put(finish(4));
    a.seal().unwrap();
    let mut b = Channel::new(3);
    b.put(finish(9));
    let early = b.seal().unwrap();
    assert_eq!(early.len(), 1, "said before anybody called");
    assert_eq!(connect(&mut a, &mut b), (false, false));
    assert_eq!(carry(a.unheard(), &mut b), [2, 3, 4]);
    assert_eq!(carry(b.unheard(), &mut a), [9]);
    assert_eq!(connect(&mut a, &mut b), (true, true));
}

#[test]
fn everything_put_together_is_one_frame_a_stream() {
    let (mut a, _) = ends(1, 2);
    for number in 1..=20 {
        a.put(finish(number));
    }
    a.put(grant(21, EXPRESS_TOKENS + 1));
    a.put(grant(22, EXPRESS_TOKENS));
    // Its grant may still be on the slow way.
    a.put(probe(21));
    let frames = a.seal().unwrap();
    let streams: Vec<Stream> = frames.iter().map(|(stream, _)| *stream).collect();
    assert_eq!(streams, [Stream::Express, Stream::Bulk]);
    let (_, mut b) = ends(1, 2);
    connect(&mut Channel::new(1), &mut b);
    let heard = carry(frames, &mut b);
    assert_eq!(heard[20..], [22, 21, 21], "each stream in order");
    assert!(a.seal().unwrap().is_empty());
}

#[test]
fn frames_that_cannot_be_are_refused_without_effect() {
    let (mut a, mut b) = ends(1, 2);
    connect(&mut a, &mut b);
    let mut frames = Vec::new();
    for number in 1..=3 {
        a.put(finish(number));
        frames.extend(a.seal().unwrap());
    }
    let [first, second, third] = frames.try_into().unwrap();
    assert_eq!(carry([first.clone()], &mut b), [1]);
    let mut said = |(stream, bytes): (Stream, Bytes)| {
        b.take(stream, &bytes).map(|parcels| parcels.len()).map_err(|broken| broken.to_string())
    };
    let replayed = said(first).unwrap_err();
    assert!(replayed.contains("sent frame 1 again"), "{replayed}");
    let gap = said(third.clone()).unwrap_err();
    assert!(gap.contains("sent frame 3 after frame 1"), "{gap}");
    let garbage = said((Stream::Express, Bytes::from_static(&[255; 9]))).unwrap_err();
    assert!(garbage.contains("garbage"), "{garbage}");
    let lie = wire::encode(&([5u64, 0], 2u64, Vec::<Parcel>::new())).unwrap();
    let unsaid = said((Stream::Express, lie.into())).unwrap_err();
    assert!(unsaid.contains("heard frame 5"), "{unsaid}");
    // After all that the right one is still the next one.
    assert_eq!(said(second), Ok(1));
    assert_eq!(said(third), Ok(1));
}

#[test]
fn a_peer_that_hears_nothing_is_not_kept_for_without_end() {
    let (mut a, _) = ends(1, 2);
    let mut sealed = 0;
    let full = loop {
        a.put(grant(sealed, 400_000));
        match a.seal() {
            Ok(_) => sealed += 1,
            Err(full) => break full,
        }
    };
    assert!((10..100).contains(&sealed), "{sealed} frames, then {full}");
}

#[test]
fn a_model_that_only_answers_acknowledges_what_it_heard() {
    let (mut a, mut b) = ends(1, 2);
    connect(&mut a, &mut b);
    a.put(finish(1));
    carry(a.seal().unwrap(), &mut b);
    assert_eq!(a.waiting(), 1);
    let life = Life::default();
    let says = ModelSays { model: ModelIx(1), life, words: smallvec![] };
    b.put(Parcel::ToHome { to: HOME, says });
    for (stream, bytes) in b.seal().unwrap() {
        a.take(stream, &bytes).unwrap();
    }
    assert_eq!(a.waiting(), 0);
    assert_eq!(b.acknowledgement(), None, "it was told with the answer");
}
