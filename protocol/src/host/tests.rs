//! Tables for the host: which grants it takes, what it feeds, and what it says after a step.

use super::*;
use crate::message::{Admission, ReportRow, RowOutcome};
use crate::request::RouteIx;
use crate::step::{Sampled, Sampling, Tokens};
use crate::testing::*;
use tokenrouter_policies::{Draws, JustSampled, PolicyState, Signals, Token, Verdict};

mod blocks;
mod launch;
mod lost;
mod steps;

/// How long a request may not move, in milliseconds.
const GRACE: u64 = 100;

/// A host of the small model, and what an engine would be told.
struct Bench {
    host: Host,
    now: u64,
    /// Live requests of its home, as that says.
    live: u32,
}

/// What the host did with one input.
#[derive(Debug, Default)]
struct Did {
    words: Vec<ModelWord>,
    job: Option<Job>,
}

impl Did {
    /// The only row reported.
    fn row(&self) -> &ReportRow {
        match self.words.as_slice() {
            [ModelWord::Row(row)] => row,
            other => panic!("not one row: {other:?}"),
        }
    }

    /// What the job feeds: start, tokens and outputs of each row.
    fn fed(&self) -> Vec<(u32, Vec<Token>, u16)> {
        let rows = self.job.iter().flat_map(|job| &job.rows);
        rows.map(|row| (row.start, row.tokens.to_vec(), row.outputs)).collect()
    }

    /// The operations in front of the job.
    fn ops(&self) -> Vec<CacheOp> {
        self.job.as_ref().map(|job| job.ops.clone()).unwrap_or_default()
    }

    fn is_nothing(&self) -> bool {
        self.words.is_empty() && self.job.is_none()
    }
}

impl Bench {
    /// A host with 16 blocks of 4 positions and wide passes.
    fn new(policy: By) -> Self {
        Self::with(policy, 16, BatchLimits::default())
    }

    fn with(policy: By, blocks: u32, batch: BatchLimits) -> Self {
        let host = Host::new(HostConfig {
            model: SMALL,
            life: life(0),
            routes: Arc::from([route(policy)]),
            pool: PoolSize { block: 4, blocks },
            batch,
            paced: false,
            grace: ms(GRACE),
        });
        Self { host, now: 0, live: 1 }
    }

    fn hear(&mut self, home: u32, word: HomeWord) -> Did {
        let (number, live, words) = (self.now, self.live, [word].into_iter().collect());
        let says = HomeSays { home: HOME, life: life(home), number, live, words };
        self.act(|host, now, out| host.hear(now, says, out))
    }

    fn grant(&mut self, grant: PeerReq) -> Did {
        self.hear(grant.fence.home.restarts, HomeWord::Grant(grant))
    }

    fn finish(&mut self, rid: RequestId, turn: u32) -> Did {
        self.hear(0, HomeWord::Finish { rid, fence: fence(turn) })
    }

    fn probe(&mut self, rid: RequestId, turn: u32) -> ModelWord {
        let did = self.hear(0, HomeWord::Probe { rid, fence: fence(turn) });
        assert!(did.job.is_none());
        did.words[0].clone()
    }

    /// The step at the engine is done and sampled these tokens, row by row.
    fn done(&mut self, outputs: &[&[Token]]) -> Did {
        let sampled = |&token: &Token| Sampled { token, signals: Signals::default() };
        let outputs = outputs.iter().map(|row| row.iter().map(sampled).collect()).collect();
        self.act(|host, now, out| host.done(now, outputs, out))
    }

    fn tick(&mut self) -> Did {
        self.act(Host::tick)
    }

    fn act(&mut self, input: impl FnOnce(&mut Host, Time, &mut Vec<Effect>)) -> Did {
        self.now += 1;
        let mut out = Vec::new();
        input(&mut self.host, ms(self.now), &mut out);
        self.host.check();
        let mut did = Did::default();
        for effect in out {
            match effect {
                Effect::Say { to, says } => {
                    assert_eq!((to, says.model, says.life), (HOME, SMALL, life(0)));
                    did.words.extend(says.words);
                }
                Effect::Run(job) => assert!(did.job.replace(job).is_none(), "two jobs"),
            }
        }
        did
    }
}

/// Turn `turn` of request `number` from position `from` on, as a grant of the home's first life.
fn grant(number: u64, turn: u32, from: u32, suffix: &str) -> PeerReq {
    PeerReq {
        rid: rid(number),
        fence: fence(turn),
        life: life(0),
        from,
        suffix: Tokens::from_vec(letters(suffix)),
        proposal: Tokens::new(),
        aux: Default::default(),
        state: PolicyState::default(),
        admission: (from == 0).then(|| {
            Box::new(Admission {
                route: RouteIx(0),
                prompt: 1,
                length_max: 40,
                sampling: Sampling::GREEDY,
                draws: Draws::new(1, 0),
                ignore_eos: false,
            })
        }),
    }
}

fn missing(number: u64, turn: u32, have: u32) -> ModelWord {
    ModelWord::Missing { rid: rid(number), fence: fence(turn), have }
}

#[test]
fn a_grant_is_taken_if_its_turn_and_its_home_are_the_highest() {
    let by_home = |restarts, turn| PeerReq {
        fence: Fence { home: life(restarts), turn },
        ..grant(1, turn, 0, "ab")
    };
    type Turns = &'static [(u32, u32)];
    // (what, grants of (home life, turn) before, the grant, whether it is taken)
    let cases: [(&str, Turns, (u32, u32), bool); 7] = [
        ("the first", &[], (0, 1), true),
        ("a higher turn", &[(0, 1)], (0, 2), true),
        ("the same turn", &[(0, 1)], (0, 1), false),
        ("a lower turn", &[(0, 2)], (0, 1), false),
        ("a lower turn of a higher home", &[(0, 5)], (1, 1), true),
        ("a higher turn of a lower home", &[(1, 1)], (0, 5), false),
        ("a lower turn after two", &[(0, 2), (0, 4)], (0, 3), false),
    ];
    for (what, before, (home, turn), taken) in cases {
        let mut bench = Bench::new(By::staying());
        for &(home, turn) in before {
            bench.grant(by_home(home, turn));
        }
        let counted = bench.host.counters();
        bench.grant(by_home(home, turn));
        let now = bench.host.counters();
        assert_eq!(now.grants - counted.grants, u64::from(taken), "{what}");
        assert_eq!(now.stale_grants - counted.stale_grants, u64::from(!taken), "{what}");
        let held = bench.host.resident(rid(1)).unwrap().fence();
        assert_eq!(
            held == Fence { home: life(home), turn },
            taken || before.contains(&(home, turn)),
            "{what}"
        );
    }
}

#[test]
fn the_life_of_a_home_outlives_its_requests() {
    let mut bench = Bench::new(By::staying());
    // Word of a higher life comes with another request, and even with one that is not held.
    bench.hear(1, HomeWord::Probe { rid: rid(9), fence: fence(1) });
    assert!(bench.grant(grant(1, 7, 0, "a")).is_nothing(), "late, from a home that is over");
    assert_eq!((bench.host.held(), bench.host.counters().stale_grants), (0, 1));
}

#[test]
fn a_grant_for_another_life_is_answered_and_not_taken() {
    let mut bench = Bench::new(By::staying());
    let did = bench.grant(PeerReq { life: life(1), ..grant(1, 3, 0, "a") });
    assert_eq!(did.words, [missing(1, 3, 0)]);
    assert_eq!(bench.host.held(), 0);
    assert_eq!(bench.grant(grant(1, 2, 0, "a")).fed().len(), 1, "and it raises no fence");
}

#[test]
fn a_grant_that_does_not_join_still_raises_the_fence() {
    let mut bench = Bench::new(By::staying());
    assert_eq!(
        bench.grant(grant(1, 1, 3, "d")).words,
        [missing(1, 1, 0)],
        "not held, no admission"
    );
    assert_eq!(bench.host.held(), 0);
    bench.grant(grant(1, 2, 0, "abc"));
    let did = bench.grant(grant(1, 5, 7, "h"));
    assert_eq!(did.words, [missing(1, 5, 3)]);
    let resident = bench.host.resident(rid(1)).unwrap();
    assert_eq!((resident.fence(), resident.phase()), (fence(5), Phase::Pending));
    assert!(bench.grant(grant(1, 4, 0, "abc")).is_nothing(), "an older grant on a slower path");
    assert!(bench.done(&[&[120]]).is_nothing(), "the step ran under an older turn");
    assert_eq!(bench.host.counters().dropped_rows, 1);
    assert_eq!(bench.grant(grant(1, 6, 2, "c")).fed(), [(2, letters("c"), 1)]);
}

#[test]
fn an_unknown_route_is_not_admitted() {
    let mut bench = Bench::new(By::staying());
    let mut odd = grant(1, 1, 0, "a");
    odd.admission.as_mut().unwrap().route = RouteIx(7);
    assert_eq!(bench.grant(odd).words, [missing(1, 1, 0)]);
    assert_eq!(bench.host.held(), 0);
}

#[test]
fn a_probe_is_answered_with_what_is_held_and_whether_it_runs() {
    let holding = |fence, working, probe| ModelWord::Holding {
        rid: rid(1),
        fence,
        working,
        probe: Some(self::fence(probe)),
    };
    let hand_over = By::routing(|_, _| to_large(JustSampled::Discard));
    let mut bench = Bench::new(hand_over);
    assert_eq!(bench.probe(rid(1), 1), holding(None, None, 1));
    bench.grant(grant(1, 2, 0, "abc"));
    assert_eq!(bench.probe(rid(1), 2), holding(Some(fence(2)), Some(3), 2), "mine");
    assert_eq!(bench.probe(rid(1), 3), holding(Some(fence(2)), None, 3), "its grant was lost");
    bench.done(&[&[120]]);
    assert_eq!(bench.probe(rid(1), 2), holding(Some(fence(2)), None, 2), "pending is not mine");
}

#[test]
fn finish_closes_what_is_held_under_no_higher_turn() {
    let mut bench = Bench::new(By::staying());
    let is_closed = |did: &Did| did.words == [ModelWord::Closed { rid: rid(1) }];
    assert!(is_closed(&bench.finish(rid(1), 1)), "not held: closed");
    bench.grant(grant(1, 3, 0, "abcde"));
    assert!(bench.finish(rid(1), 2).is_nothing(), "of an older turn");
    assert_eq!(bench.host.blocks_used(), 2);
    let did = bench.finish(rid(1), 3);
    assert!(is_closed(&did) && did.job.is_none());
    assert_eq!((bench.host.held(), bench.host.blocks_used()), (0, 0));
    // The blocks are freed when the running step is done, and nothing of it is told.
    let did = bench.done(&[&[120]]);
    assert_eq!(did.ops(), [CacheOp::Close { sequence: SequenceId(1) }]);
    assert!(did.words.is_empty() && did.fed().is_empty());
    assert!(is_closed(&bench.finish(rid(1), 3)), "again: closed");
    assert!(bench.done(&[]).is_nothing());
}

#[test]
fn a_request_that_comes_back_after_its_end_is_a_stranger_to_its_old_step() {
    let mut bench = Bench::new(By::staying());
    bench.grant(grant(1, 1, 0, "ab"));
    bench.finish(rid(1), 1);
    bench.grant(grant(1, 1, 0, "ab"));
    let did = bench.done(&[&[120]]);
    assert!(did.words.is_empty(), "same name, same turn, another sequence: {did:?}");
    assert_eq!(did.ops(), [CacheOp::Close { sequence: SequenceId(1) }]);
    assert_eq!(did.fed(), [(0, letters("ab"), 1)]);
}

#[test]
fn a_home_is_reminded_of_what_does_not_move() {
    let reminder = |number| ModelWord::Holding {
        rid: rid(number),
        fence: Some(fence(1)),
        working: None,
        probe: None,
    };
    let mut bench = Bench::new(By::routing(|_, _| to_large(JustSampled::Discard)));
    bench.grant(grant(1, 1, 0, "ab"));
    bench.now = 50;
    bench.done(&[&[120]]);
    bench.now = 50 + GRACE - 1;
    assert!(bench.tick().is_nothing(), "a step is a move");
    assert_eq!(bench.tick().words, [reminder(1)]);
    assert!(bench.tick().is_nothing(), "once per grace");
    bench.now += GRACE;
    assert_eq!(bench.tick().words, [reminder(1)], "and again");
}

#[test]
fn live_requests_are_those_of_the_latest_words_of_the_highest_lives() {
    let mut bench = Bench::new(By::staying());
    let mut say = |life_of_home, number, live| {
        let word = HomeWord::Probe { rid: rid(1), fence: fence(1) };
        let says = HomeSays {
            home: HOME,
            life: life(life_of_home),
            number,
            live,
            words: [word].into_iter().collect(),
        };
        bench.act(|host, now, out| host.hear(now, says, out));
        bench.host.live()
    };
    assert_eq!([say(1, 4, 3), say(0, 9, 9), say(1, 3, 8), say(2, 1, 5)], [3, 3, 3, 5]);
}

#[test]
fn a_new_life_greets() {
    let mut bench = Bench::new(By::staying());
    let did = bench.act(|host, _, out| host.greet(HOME, out));
    assert_eq!(did.words, [ModelWord::Reborn]);
}
