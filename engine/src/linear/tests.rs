//! The kernel against sums in double precision, and its bits against itself.

use super::*;
use tokenrouter_policies::{Draws, Purpose};

/// `count` numbers in [-1, 1), all different for different seeds.
fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let draws = Draws::new(seed, 0);
    (0..count as u32).map(|at| draws.uniform(at, Purpose::Token) as f32 * 2.0 - 1.0).collect()
}

fn bf16(numbers: Vec<f32>) -> Vec<f32> {
    numbers.into_iter().map(|number| f32::from_bits(number.to_bits() & 0xffff_0000)).collect()
}

fn layer(weight: &[f32], bias: Option<&[f32]>, inputs: usize) -> Linear {
    let shape = (weight.len() / inputs, inputs);
    let weight = Tensor::from_slice(weight, shape, &Device::Cpu).unwrap();
    let bias = bias.map(|bias| Tensor::new(bias, &Device::Cpu).unwrap());
    Linear::new(&weight, bias.as_ref()).unwrap()
}

fn apply(layer: &Linear, x: &[f32]) -> Vec<f32> {
    let mut out = vec![f32::NAN; x.len() / layer.inputs * layer.outputs];
    layer.apply(x, &mut out);
    out
}

#[test]
fn it_multiplies_and_adds() {
    for (inputs, outputs) in [(1, 1), (5, 16), (64, 33), (96, 127), (200, 80)] {
        for exact in [false, true] {
            let mut weight = numbers(1, inputs * outputs);
            if exact {
                weight = bf16(weight);
            }
            let (bias, x) = (numbers(2, outputs), numbers(3, 7 * inputs));
            let layer = layer(&weight, Some(&bias), inputs);
            assert_eq!(matches!(layer.packed, Packed::Bf16(_)), exact);
            assert_eq!(layer.unpack(), weight);
            for (at, got) in apply(&layer, &x).iter().enumerate() {
                let (row, output) = (at / outputs, at % outputs);
                let (x, w) = (&x[row * inputs..], &weight[output * inputs..][..inputs]);
                let products = w.iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x));
                let want = products.sum::<f64>() + f64::from(bias[output]);
                assert!((f64::from(*got) - want).abs() < 1e-5, "{inputs}x{outputs}: {got} {want}");
            }
        }
    }
}

#[test]
fn a_row_has_the_same_bits_in_every_batch_and_on_every_number_of_threads() {
    let (inputs, outputs) = (192, 511);
    for weight in [numbers(1, inputs * outputs), bf16(numbers(1, inputs * outputs))] {
        let layer = layer(&weight, None, inputs);
        let x = numbers(4, 33 * inputs);
        let alone: Vec<_> = x.chunks(inputs).flat_map(|row| apply(&layer, row)).collect();
        for rows in 1..=33 {
            assert_eq!(apply(&layer, &x[..rows * inputs]), alone[..rows * outputs], "{rows}");
        }
        for threads in [1, 2, 3] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            assert_eq!(pool.install(|| apply(&layer, &x)), alone, "{threads} threads");
        }
    }
}

#[test]
fn it_stands_in_for_a_layer_of_any_rank() {
    let layer = layer(&numbers(1, 12), None, 4);
    let x = Tensor::from_vec(numbers(2, 24), (2, 3, 4), &Device::Cpu).unwrap();
    let out = QuantMethod::forward(&layer, &x).unwrap();
    assert_eq!(out.dims(), [2, 3, 3]);
    let turned = QuantMethod::forward(&layer, &x.transpose(0, 1).unwrap()).unwrap();
    assert_eq!(
        turned.transpose(0, 1).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap(),
        out.flatten_all().unwrap().to_vec1::<f32>().unwrap()
    );
    assert!(QuantMethod::forward(&layer, &x.narrow(2, 0, 3).unwrap()).is_err());
}
