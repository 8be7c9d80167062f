//! Whatever a peer sends, decoding it ends without a panic and without an allocation that its length does not justify; and
//! what can be decoded is encoded to something that decodes to the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tokenrouter_protocol::Parcel;
use tokenrouter_transport::wire;

/// What a frame holds: what was heard, its number, its parcels.
type Frame = ([u64; 2], u64, Vec<Parcel>);

fuzz_target!(|bytes: &[u8]| {
    if let Ok(frame) = wire::decode::<Frame>(bytes) {
        let again = wire::encode(&frame).expect("what was decoded can be encoded");
        // Compared as text, since a number that is none equals nothing.
        let decoded = wire::decode::<Frame>(&again).expect("what was encoded can be decoded");
        assert_eq!(format!("{decoded:?}"), format!("{frame:?}"));
    }
});
