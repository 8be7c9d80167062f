//! How much memory models take, and how they share one device: pure arithmetic, before anything is loaded.

use crate::kv::BLOCK;
use tokenrouter_policies::Position;
use tokenrouter_protocol::PoolSize;

/// The memory of one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Bytes of its weights.
    pub weights: u64,
    /// Bytes of the keys and values of one position.
    pub position: u64,
    /// The most positions that one of its sequences can have.
    pub context: Position,
}

/// The models do not fit on their device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the models of this device need {needed} bytes, of which {weights} are weights, for KV pools of only {positions} \
     positions, and {budget} are allowed; raise the memory limit or leave a model out"
)]
pub struct DoesNotFit {
    /// Bytes that the least capacity takes.
    pub needed: u64,
    /// Bytes of all weights.
    pub weights: u64,
    /// That least capacity, in positions.
    pub positions: Position,
    /// Bytes allowed.
    pub budget: u64,
}

/// The largest pool that every model of a device can have, the same number of positions for each, in whole blocks:
/// the greatest K with `Σ(weights + K · position) ≤ budget`.
///
/// # Errors
/// [`DoesNotFit`] where K is less than `least` positions.
pub fn common_pool(
    models: &[Footprint],
    budget: u64,
    least: Position,
) -> Result<PoolSize, DoesNotFit> {
    // Wide, so that no footprint however absurd can overflow.
    let weights: u128 = models.iter().map(|model| u128::from(model.weights)).sum();
    let block: u128 =
        models.iter().map(|model| u128::from(model.position)).sum::<u128>() * u128::from(BLOCK);
    let least = PoolSize { block: BLOCK, blocks: least.div_ceil(BLOCK).max(1) };
    let blocks = u128::from(budget).saturating_sub(weights) / block.max(1);
    let enough = weights + block * u128::from(least.blocks) <= u128::from(budget);
    if !enough {
        let needed = weights + block * u128::from(least.blocks);
        return Err(DoesNotFit {
            needed: clamp(needed),
            weights: clamp(weights),
            positions: least.positions(),
            budget,
        });
    }
    // The number of positions of a pool must itself be a `Position`.
    let most = u128::from(Position::MAX / BLOCK);
    Ok(PoolSize { block: BLOCK, blocks: blocks.min(most) as u32 })
}

fn clamp(bytes: u128) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(weights: u64, position: u64) -> Footprint {
        Footprint { weights, position, context: 4096 }
    }

    #[test]
    fn the_pool_is_the_largest_that_fits_in_whole_blocks() {
        let models = [model(1000, 10), model(500, 30)];
        // One block of both takes 16 * 40 = 640 bytes.
        for (budget, blocks) in [(2140, 1), (2779, 1), (2780, 2), (1500 + 640 * 77 + 639, 77)] {
            let pool = common_pool(&models, budget, 1).unwrap();
            assert_eq!(pool, PoolSize { block: 16, blocks }, "{budget}");
            let used = 1500 + 40 * u64::from(pool.positions());
            assert!(used <= budget && used + 640 > budget);
        }
    }

    #[test]
    fn a_refusal_carries_the_numbers() {
        let models = [model(1000, 10), model(500, 30)];
        let refused = common_pool(&models, 2139, 1).unwrap_err();
        let wanted = DoesNotFit { needed: 2140, weights: 1500, positions: 16, budget: 2139 };
        assert_eq!(refused, wanted);
        assert_eq!(common_pool(&models, 2780, 33).unwrap_err().needed, 1500 + 3 * 640);
        assert!(refused.to_string().contains("2140"));
    }

    #[test]
    fn absurd_sizes_do_not_overflow() {
        let huge = [model(u64::MAX, u64::MAX); 3];
        assert_eq!(common_pool(&huge, u64::MAX, Position::MAX).unwrap_err().needed, u64::MAX);
        let pool = common_pool(&[model(0, 1)], u64::MAX, 1).unwrap();
        assert!(pool.positions() < Position::MAX);
        assert!(common_pool(&[], 0, 1).is_ok());
    }
}
