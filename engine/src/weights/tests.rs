//! Whole and broken files.

use super::*;
use std::collections::BTreeMap;

/// A safetensors file of these tensors.
fn file(tensors: &[(&str, &[usize], Dtype, &[u8])]) -> Vec<u8> {
    let views: BTreeMap<_, _> = tensors
        .iter()
        .map(|(name, shape, dtype, data)| {
            let view = safetensors::tensor::TensorView::new(*dtype, shape.to_vec(), data);
            (name.to_string(), view.unwrap())
        })
        .collect();
    safetensors::serialize(views, None).unwrap()
}

/// 1, -2 in bf16 and 0.5, 3 in f32.
fn two() -> Vec<u8> {
    let bf16 = [0x80, 0x3f, 0x00, 0xc0];
    let f32s = [0.5f32.to_le_bytes(), 3f32.to_le_bytes()].concat();
    file(&[("a", &[2], Dtype::BF16, &bf16), ("b", &[1, 2], Dtype::F32, &f32s)])
}

fn embedded(bytes: Vec<u8>) -> Result<Tensors, WeightsError> {
    Tensors::open(&Weights::Embedded(Box::leak(bytes.into())))
}

/// A folder of this test alone, removed in the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("tokenrouter-weights-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn numbers(tensors: &Tensors, name: &str) -> Vec<f32> {
    let tensor = tensors.get_unchecked(name, DType::F32, &Device::Cpu).unwrap();
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

#[test]
fn memory_and_files_give_the_same_numbers_widened() {
    let folder = Folder::new("same");
    let path = folder.write("model.safetensors", &two());
    let from_file = Tensors::open(&Weights::Files(vec![path])).unwrap();
    for tensors in [embedded(two()).unwrap(), from_file] {
        assert_eq!(numbers(&tensors, "a"), [1.0, -2.0]);
        assert_eq!(numbers(&tensors, "b"), [0.5, 3.0]);
        assert!(tensors.contains_tensor("a") && !tensors.contains_tensor("c"));
    }
}

#[test]
fn an_index_names_its_files() {
    let folder = Folder::new("index");
    folder.write("1.safetensors", &file(&[("a", &[1], Dtype::BF16, &[0x80, 0x3f])]));
    folder.write("2.safetensors", &file(&[("b", &[1], Dtype::F16, &[0x00, 0x40])]));
    let map = br#"{ "weight_map": { "a": "1.safetensors", "b": "2.safetensors" } }"#;
    let index = folder.write("model.safetensors.index.json", map);
    let tensors = Tensors::open(&Weights::Files(vec![index])).unwrap();
    assert_eq!((numbers(&tensors, "a"), numbers(&tensors, "b")), (vec![1.0], vec![2.0]));
    let index = folder.write("x.index.json", b"[]");
    assert!(matches!(Tensors::open(&Weights::Files(vec![index])), Err(WeightsError::Index { .. })));
    let missing = folder.0.join("none.safetensors");
    assert!(matches!(
        Tensors::open(&Weights::Files(vec![missing])),
        Err(WeightsError::Read { .. })
    ));
}

#[test]
fn every_truncation_is_an_error() {
    let folder = Folder::new("truncated");
    let whole = two();
    for length in 0..whole.len() {
        let part = whole[..length].to_vec();
        let path = folder.write("part.safetensors", &part);
        let from_file = Tensors::open(&Weights::Files(vec![path]));
        for result in [embedded(part), from_file] {
            assert!(matches!(result, Err(WeightsError::Format { .. })), "{length}");
        }
    }
    for garbage in [vec![0xff; 64], vec![0; 64], b"{\"a\": 1}".repeat(9)] {
        assert!(matches!(embedded(garbage), Err(WeightsError::Format { .. })));
    }
}

#[test]
fn what_does_not_fit_is_named_with_both_shapes() {
    let tensors = embedded(two()).unwrap();
    let check = |name: &str, shape: &[usize]| {
        tensors.check(&[(name.to_owned(), shape.to_vec())]).map_err(|error| error.to_string())
    };
    assert_eq!(check("a", &[2]), Ok(()));
    assert!(check("c", &[2]).unwrap_err().contains("tensor c is missing"));
    let shape = check("b", &[2, 1]).unwrap_err();
    assert!(shape.contains("tensor b has shape [1, 2]") && shape.contains("[2, 1]"), "{shape}");
    let tensors = embedded(file(&[("i", &[1], Dtype::I8, &[1])])).unwrap();
    let numbers = tensors.check(&[("i".to_owned(), vec![1])]).unwrap_err();
    assert!(matches!(numbers, WeightsError::Numbers { .. }));
    let shape = Shape::from(3);
    let init = candle_nn::Init::default();
    assert!(embedded(two()).unwrap().get(shape, "a", init, DType::F32, &Device::Cpu).is_err());
}
