//! The bugs: each a sentence of the protocol that is left out at one place of its source.

/// A bug that can be planted.
#[derive(Clone, Copy, Debug)]
pub struct Bug {
    /// What is wrong.
    pub name: &'static str,
    /// The file.
    pub file: &'static str,
    /// What the file says, at exactly one place.
    pub original: &'static str,
    /// What the copy says instead; `BUG` is true where the bug is turned on.
    pub planted: &'static str,
}

const HOME: &str = "protocol/src/home.rs";
const TURNS: &str = "protocol/src/home/turns.rs";
const LEDGER: &str = "protocol/src/ledger.rs";
const HOST: &str = "protocol/src/host.rs";
const LAUNCH: &str = "protocol/src/host/launch.rs";
const POOL: &str = "protocol/src/host/pool.rs";
const RESIDENCY: &str = "protocol/src/residency.rs";

/// All of them.
pub const BUGS: &[Bug] = &[
    Bug {
        name: "a model does not compare fences",
        file: HOST,
        original: "fence <= r.fence()",
        planted: "!BUG && fence <= r.fence()",
    },
    Bug {
        name: "home does not compare fences",
        file: LEDGER,
        original: "row.fence != self.fence ||",
        planted: "!BUG && row.fence != self.fence ||",
    },
    Bug {
        name: "home believes a life that is over",
        file: HOME,
        original: "|| life < self.lives[model.index()]",
        planted: "|| life < self.lives[model.index()]
            && !(BUG && {
                self.lives[model.index()] = life;
                true
            })",
    },
    Bug {
        name: "a model takes a grant of another life",
        file: HOST,
        original: "grant.life != self.config.life",
        planted: "!BUG && grant.life != self.config.life",
    },
    Bug {
        name: "home learns of a new life from its greeting alone",
        file: HOME,
        original: "        self.learn(now, model, life);
        for word in says.words",
        planted: "        if !BUG || says.words.contains(&ModelWord::Reborn) {
            self.learn(now, model, life);
        }
        for word in says.words",
    },
    Bug {
        name: "a model takes a late grant of a dead home",
        file: HOST,
        original: "life < heard.life",
        planted: "!BUG && life < heard.life",
    },
    Bug {
        name: "anchors of a dead life are kept",
        file: LEDGER,
        original: "a.model == model && a.life == life",
        planted: "a.model == model && (BUG || a.life == life)",
    },
    Bug {
        name: "only the first grant from 0 says what is asked for",
        file: LEDGER,
        original: "(from == 0).then",
        planted: "(from == 0 && !(BUG && self.standing.anchors.iter().any(|a| a.life == life))).then",
    },
    Bug {
        name: "a grant does not cut back",
        file: RESIDENCY,
        original: "Grant::Taken { keep: grant.from }",
        planted: "Grant::Taken { keep: if BUG { Position::MAX } else { grant.from } }",
    },
    Bug {
        name: "a grant that does not join does not raise the fence",
        file: RESIDENCY,
        original: "self.fence = grant.fence;",
        planted: "if !BUG || grant.from <= self.cached {
            self.fence = grant.fence;
        }",
    },
    Bug {
        name: "a row with a hole before it is accepted",
        file: LEDGER,
        original: "row.start > self.committed()",
        planted: "!BUG && row.start > self.committed()",
    },
    Bug {
        name: "a discarded token is committed",
        file: RESIDENCY,
        original: "if fate == JustSampled::Commit {",
        planted: "if fate == JustSampled::Commit || BUG && fate == JustSampled::Discard {",
    },
    Bug {
        name: "a rejected draft stays in the cache",
        file: HOST,
        original: "if kept < cached {",
        planted: "if !BUG && kept < cached {",
    },
    Bug {
        name: "a row of an older turn is not dropped when its step is done",
        file: HOST,
        original: "r.fence() == row.fence &&",
        planted: "(BUG || r.fence() == row.fence) &&",
    },
    Bug {
        name: "`Finish` is said once",
        file: HOME,
        original: "c.due <= now",
        planted: "!BUG && c.due <= now",
    },
    Bug {
        name: "a `Finish` of an older turn is obeyed",
        file: HOST,
        original: "if fence < resident.fence() {",
        planted: "if !BUG && fence < resident.fence() {",
    },
    Bug {
        name: "a finished request that a late grant revives is left alone",
        file: HOME,
        original: "!self.closing.contains_key(&rid) && !adopting",
        planted: "!BUG && !self.closing.contains_key(&rid) && !adopting",
    },
    Bug {
        name: "a model does not name what has not moved",
        file: HOST,
        original: "now >= r.moved.max(r.named) + grace",
        planted: "!BUG && now >= r.moved.max(r.named) + grace",
    },
    Bug {
        name: "blocks are freed under a running step",
        file: LAUNCH,
        original: "        if self.busy {
",
        planted: "        if BUG && self.busy && !self.ops.is_empty() {
            let ops = std::mem::take(&mut self.ops);
            return out.push(Effect::Run(Job { ops, rows: Vec::new() }));
        }
        if self.busy {
",
    },
    Bug {
        name: "a preempted owner is not told of",
        file: POOL,
        original: "self.say(victim.home, ModelWord::Missing { rid: victim, fence, have: 0 });",
        planted: "if !BUG {
                    self.say(victim.home, ModelWord::Missing { rid: victim, fence, have: 0 });
                }",
    },
    Bug {
        name: "a fence is forgotten with the cache",
        file: RESIDENCY,
        original: "self.sequence = sequence;",
        planted: "self.sequence = sequence;
        if BUG {
            self.fence = Fence::default();
        }",
    },
    Bug {
        name: "a pending request counts as work when asked",
        file: HOST,
        original: "r.phase() == Phase::Running && r.fence() == probe",
        planted: "(BUG || r.phase() == Phase::Running) && r.fence() == probe",
    },
    Bug {
        name: "a later life of a home forgets where a request stood",
        file: LEDGER,
        original: "standing.unwrap_or(ledger.standing)",
        planted: "if BUG { ledger.standing } else { standing.unwrap_or(ledger.standing) }",
    },
    Bug {
        name: "a later life of a home shows again what was shown",
        file: LEDGER,
        original: "        ledger.reply.take(finish.is_some());
",
        planted: "        if !BUG {
            ledger.reply.take(finish.is_some());
        }
",
    },
    Bug {
        name: "a later life of a home goes on with a complete reply",
        file: HOME,
        original: "match finish {",
        planted: "match finish.filter(|_| !BUG) {",
    },
    Bug {
        name: "a hole is left to the watchdog",
        file: HOME,
        original: "self.counters.holes += 1;
                self.regrant(now, rid);",
        planted: "self.counters.holes += 1;
                if !BUG {
                    self.regrant(now, rid);
                }",
    },
    Bug {
        name: "a death is left to the watchdog",
        file: TURNS,
        original: "self.regrant_all(now, orphans);",
        planted: "if !BUG {
            self.regrant_all(now, orphans);
        }",
    },
    Bug {
        name: "a lost door is left to the watchdog",
        file: HOME,
        original: "self.regrant_all(now, lost);",
        planted: "if !BUG {
            self.regrant_all(now, lost);
        }",
    },
    Bug {
        name: "home forgets what a model holds",
        file: LEDGER,
        original: "self.anchor_at(model, life, row.cached.min(self.committed()));",
        planted: "self.anchor_at(model, life, if BUG { 0 } else { row.cached.min(self.committed()) });",
    },
    Bug {
        name: "the watchdog does not wait longer each time",
        file: TURNS,
        original: "grants.min(8)",
        planted: "if BUG { 0 } else { grants.min(8) }",
    },
    Bug {
        name: "a silent home counts for ever",
        file: HOST,
        original: "now >= home.at + grace",
        planted: "!BUG && now >= home.at + grace",
    },
    Bug {
        name: "a model waits for one more than are alive",
        file: "protocol/src/batcher.rs",
        original: "self.thresholds.at(live)",
        planted: "self.thresholds.at(live + u32::from(BUG))",
    },
    Bug {
        name: "home does not count down",
        file: HOME,
        original: "self.live[model.index()] -= 1;",
        planted: "self.live[model.index()] -= u32::from(!BUG);",
    },
    Bug {
        name: "token and route share a draw",
        file: "policies/src/draw.rs",
        original: "Purpose::Route => 2,",
        planted: "Purpose::Route => if BUG { 1 } else { 2 },",
    },
];
