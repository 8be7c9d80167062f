//! Checkpoints that PyTorch wrote, and files that pretend to be some.

use super::*;
use serde_json::json;

fn file(name: &str) -> PathBuf {
    Path::new("tests/heads").join(name)
}

fn fault(bytes: &[u8]) -> String {
    Pickle::read(bytes).unwrap_err().to_string()
}

#[test]
fn a_checkpoint_says_what_it_is() {
    let head = Converted::read(&file("hidden-token-logits.pt")).unwrap();
    assert_eq!(head.card.model_type, "HiddenStatesTokenLMHeadLogitsClassifier");
    assert_eq!(head.card.threshold, Some(0.405));
    assert_eq!(head.card.input_type, Some(json!(["hidden_states", "token", "logits"])));
    let arguments = json!({
        "hidden_states_size": 12, "logits_size": 16, "hidden_dims": [10, 14], "expansion_factor": 2,
        "normalize_input": false, "dtype": "float32", "pretrained_model_name": null,
    });
    assert_eq!(serde_json::Value::Object(head.card.init_args), arguments);
    assert_eq!(head.tensors["combined_projection.weight"].dims(), [10, 36]);
    assert_eq!(head.tensors["backbone.blocks.0.dim_change.bias"].dims(), [14]);

    let citer = Converted::read(&file("citer.pth")).unwrap();
    assert_eq!(citer.card.model_type, "CITER");
    assert!(!citer.tensors.contains_key("mlp.1.num_batches_tracked"));
    assert_eq!(citer.tensors.len(), 10);
}

#[test]
fn what_is_written_is_read_again() {
    let head = Converted::read(&file("hidden-logits.pt")).unwrap();
    let folder = std::env::temp_dir().join(format!("tokenrouter-convert-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let card = head.write(&folder.join("head.safetensors")).unwrap();
    let read = HeadCard::parse(&std::fs::read(&card).unwrap()).unwrap();
    let tensors =
        candle_core::safetensors::load(folder.join("head.safetensors"), &Device::Cpu).unwrap();
    let failed = head.write(&folder.join("none/head.safetensors")).unwrap_err().to_string();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(card, folder.join("head.json"));
    assert_eq!(read, head.card);
    assert_eq!(tensors.len(), head.tensors.len());
    for (name, tensor) in tensors {
        let numbers = |t: &Tensor| {
            t.flatten_all().unwrap().to_dtype(DType::F32).unwrap().to_vec1::<f32>().unwrap()
        };
        assert_eq!(numbers(&tensor), numbers(&head.tensors[&name]), "{name}");
    }
    assert!(failed.contains("cannot be written"), "{failed}");
}

#[test]
fn nothing_is_executed() {
    for name in ["evil.pt", "evil-within.pt"] {
        let told = Converted::read(&file(name)).unwrap_err().to_string();
        let expected = "its pickle is refused: it names `posix.system`, which is not data; nothing of it was executed";
        assert_eq!(told, expected);
    }
    // The same through other instructions: a class made without a call, and a name out of the stack.
    assert!(fault(b"\x80\x02cbuiltins\neval\n)\x81.").contains("`builtins.eval`"));
    assert!(fault(b"\x80\x04X\x05\x00\x00\x00posixX\x06\x00\x00\x00system\x93.").contains("0x93"));
    assert!(fault(b"\x80\x02ctorch\nload\n.").contains("`torch.load`"));
}

#[test]
fn broken_pickles_are_refused_without_harm() {
    let malformed: [&[u8]; 14] = [
        b"",
        b"\x80",
        b"N",
        b"X\xff\xff\xff\xff.",
        b"t.",
        b"(1",
        b"R.",
        b"NNR.",
        b"h\x05.",
        b"Na.",
        b"]Ns.",
        b"NQ.",
        b"\x8a\x20aaaa.",
        b"ctorch._utils\n_rebuild_tensor_v2\n)R.",
    ];
    for bytes in malformed {
        assert!(Pickle::read(bytes).is_err(), "{bytes:?}");
    }
    // A list within itself, and a list that doubles with every line, are read and end.
    let own = Pickle::read(b"]q\x00h\x00a.").unwrap();
    assert!(own.json(own.root()).is_array());
    let mut doubling = b"]q\x00".to_vec();
    (1..40).for_each(|_| doubling.extend(b"h\x00]q\x00(h\x00h\x00e"));
    doubling.push(b'.');
    assert!(Pickle::read(&doubling).is_ok());
}

#[test]
fn a_list_that_several_values_share_is_whole_in_each() {
    let shared = Pickle::read(b"}(X\x01\x00\x00\x00a]q\x01X\x01\x00\x00\x00bh\x01h\x01K\x07a0u.");
    assert!(shared.is_err(), "an instruction that is not needed");
    let shared =
        Pickle::read(b"}(X\x01\x00\x00\x00a]q\x01(K\x07K\x08eX\x01\x00\x00\x00bh\x01u.").unwrap();
    assert_eq!(shared.json(shared.root()), json!({"a": [7, 8], "b": [7, 8]}));
    let long = Pickle::read(b"(\x8a\x02\xff\xffJ\xfe\xff\xff\xffM\x01\x02\x8a\x00t.").unwrap();
    assert_eq!(long.json(long.root()), json!([-1, -2, 513, 0]));
}

#[test]
fn other_files_are_told_as_such() {
    let golden = Converted::read(&file("golden.safetensors")).unwrap_err().to_string();
    assert!(golden.contains("is not an archive as torch.save writes it"), "{golden}");
    let none = Converted::read(&file("none.pt")).unwrap_err().to_string();
    assert!(none.contains("none.pt cannot be read"), "{none}");

    let whole = std::fs::read(file("citer.pth")).unwrap();
    let cut = std::env::temp_dir().join(format!("tokenrouter-cut-{}.pth", std::process::id()));
    for length in [whole.len() / 3, whole.len() - 40] {
        std::fs::write(&cut, &whole[..length]).unwrap();
        assert!(Converted::read(&cut).is_err());
    }
    std::fs::remove_file(&cut).unwrap();
}

#[test]
fn a_tensor_stays_within_its_storage() {
    let place = |shape: &[usize], strides: &[usize], offset| {
        TensorPlace::new(DType::F32, "0", shape.to_vec(), offset, strides.to_vec())
    };
    assert_eq!(place(&[2, 3], &[3, 1], 0).runs(6), Ok((vec![0], 6)));
    assert_eq!(place(&[2, 3], &[1, 2], 1).runs(9), Ok((vec![1, 3, 5, 2, 4, 6], 1)));
    assert_eq!(place(&[2, 1, 2], &[4, 9, 1], 0).runs(8), Ok((vec![0, 4], 2)));
    assert_eq!(place(&[], &[], 3).runs(4), Ok((vec![3], 1)));
    assert!(place(&[7], &[0], 0).runs(6).is_err(), "more numbers than there are");
    assert!(place(&[1 << 40, 1 << 40], &[1, 1], 0).runs(6).is_err());
}
