//! The inner loops of the linear kernel: fixed blocks of rows and tiles whose sums stay in registers.
//!
//! The loops are plain Rust over arrays of fixed size, which the compiler turns into AVX2 and FMA instructions on the
//! processors that we build for, and into slower code with the same bits elsewhere.

/// Outputs in a tile: two AVX2 registers of f32.
pub(super) const TILE: usize = 16;

/// The most rows that one pass over a tile serves: 6 × 2 registers of sums, two of weights, one of input.
const ROWS: usize = 6;

/// A weight as it is stored.
pub(super) trait Weight: Copy + Send + Sync {
    /// The weight as a number, exactly.
    fn widen(self) -> f32;
}

/// `x` is `[rows, inputs]`, `out` is `[rows, outputs]`, `packed` holds at least `outputs` outputs in tiles.
pub(super) fn multiply<W: Weight>(
    packed: &[W],
    inputs: usize,
    x: &[f32],
    out: &mut [f32],
    outputs: usize,
) {
    let rows = x.len() / inputs;
    if rows == 1 {
        return single_row(packed, inputs, x, out);
    }
    let (blocks, tile) = (rows.div_ceil(ROWS), TILE * inputs);
    for (index, tile) in packed.chunks_exact(tile).enumerate() {
        let first = index * TILE;
        // Blocks of equal size, as far as possible: 7 rows are 4 and 3, not 6 and 1.
        for block in 0..blocks {
            let (from, to) = (rows * block / blocks, rows * (block + 1) / blocks);
            let mut place = Place { out: &mut *out, outputs, row: from, first };
            let x = &x[from * inputs..to * inputs];
            match to - from {
                1 => place.fill::<W, 1>(tile, x, inputs),
                2 => place.fill::<W, 2>(tile, x, inputs),
                3 => place.fill::<W, 3>(tile, x, inputs),
                4 => place.fill::<W, 4>(tile, x, inputs),
                5 => place.fill::<W, 5>(tile, x, inputs),
                _ => place.fill::<W, ROWS>(tile, x, inputs),
            }
        }
    }
}

/// One row: four tiles at a time, since two chains of sums alone would wait for each other's latency.
fn single_row<W: Weight>(packed: &[W], inputs: usize, x: &[f32], out: &mut [f32]) {
    const TILES: usize = 4;
    let tile = TILE * inputs;
    let mut tiles = packed.chunks_exact(TILES * tile);
    let mut outs = out.chunks_mut(TILES * TILE);
    for (four, out) in tiles.by_ref().zip(outs.by_ref()) {
        let sums = sums::<W, TILES, 1>(std::array::from_fn(|t| &four[t * tile..][..tile]), [x]);
        let sums = sums.iter().flat_map(|[sums]| sums);
        out.iter_mut().zip(sums).for_each(|(out, sum)| *out = *sum);
    }
    let rest = tiles.remainder().chunks_exact(tile);
    for (tile, out) in rest.zip(outs.flat_map(|outs| outs.chunks_mut(TILE))) {
        let [[sums]] = sums::<W, 1, 1>([tile], [x]);
        out.iter_mut().zip(&sums).for_each(|(out, sum)| *out = *sum);
    }
}

/// Where the sums of a tile go: the columns from `first` on of the rows from `row` on.
struct Place<'a> {
    out: &'a mut [f32],
    outputs: usize,
    row: usize,
    first: usize,
}

impl Place<'_> {
    #[inline(always)]
    fn fill<W: Weight, const R: usize>(&mut self, tile: &[W], x: &[f32], inputs: usize) {
        let x: [&[f32]; R] = std::array::from_fn(|r| &x[r * inputs..][..inputs]);
        let [sums] = sums::<W, 1, R>([tile], x);
        let columns = TILE.min(self.outputs - self.first);
        for (r, sums) in sums.iter().enumerate() {
            let start = (self.row + r) * self.outputs + self.first;
            self.out[start..start + columns].copy_from_slice(&sums[..columns]);
        }
    }
}

/// The sums of `T` tiles and `R` rows, each one chain over k.
#[inline(always)]
fn sums<W: Weight, const T: usize, const R: usize>(
    tiles: [&[W]; T],
    x: [&[f32]; R],
) -> [[[f32; TILE]; R]; T] {
    let mut sums = [[[0.0; TILE]; R]; T];
    let inputs = x[0].len();
    let tiles = tiles.map(|tile| tile.as_chunks::<TILE>().0);
    // Equal lengths known here spare a check in every turn.
    assert!(tiles.iter().all(|tile| tile.len() == inputs) && x.iter().all(|x| x.len() == inputs));
    for k in 0..inputs {
        for t in 0..T {
            let weights: [f32; TILE] = tiles[t][k].map(W::widen);
            for r in 0..R {
                for lane in 0..TILE {
                    sums[t][r][lane] = x[r][k].mul_add(weights[lane], sums[t][r][lane]);
                }
            }
        }
    }
    sums
}
