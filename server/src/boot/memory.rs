//! Sharing out the memory: pools that the topology fixes first, then one common size for the others.

use super::Model;
use tokenrouter_config::{Bytes, Error, Topology};
use tokenrouter_engine::memory::common_pool;
use tokenrouter_engine::{BLOCK, Footprint};
use tokenrouter_policies::Position;
use tokenrouter_protocol::PoolSize;

/// A context shorter than this serves nobody, so a budget that leaves less is refused.
const LEAST_POSITIONS: Position = 128;

/// Gives every model of one node its pool.
pub(super) fn share(topology: &Topology, models: &mut [&mut Model]) -> Result<(), Error> {
    let budget = topology.memory.cpu.0;
    let mut fixed = 0_u64;
    let mut common: Vec<Footprint> = Vec::new();
    for model in models.iter_mut() {
        let footprint = model.footprint();
        match topology.models[&model.name].kv_positions {
            Some(positions) => {
                model.pool = PoolSize { block: BLOCK, blocks: positions.div_ceil(BLOCK) };
                let pool = footprint.position.saturating_mul(u64::from(model.pool.positions()));
                fixed = fixed.saturating_add(footprint.weights).saturating_add(pool);
            }
            None => common.push(footprint),
        }
    }
    let Some(left) = budget.checked_sub(fixed) else {
        let reason = format!(
            "the models with `kv_positions` alone need {}, and {} are allowed; raise the limit or lower their positions",
            Bytes(fixed),
            Bytes(budget)
        );
        return Err(topology.error(&["memory", "cpu"], reason));
    };
    if common.is_empty() {
        return Ok(());
    }
    let shared = common_pool(&common, left, LEAST_POSITIONS)
        .map_err(|e| topology.error(&["memory", "cpu"], e.to_string()))?;
    for model in models.iter_mut() {
        if topology.models[&model.name].kv_positions.is_none() {
            // More than every admitted request can use at once would be of no use.
            let useful = topology.limits.requests as u64 * u64::from(model.arch.context);
            let blocks = useful.div_ceil(u64::from(BLOCK)).min(u64::from(shared.blocks));
            model.pool = PoolSize { block: BLOCK, blocks: blocks as u32 };
        }
    }
    Ok(())
}
