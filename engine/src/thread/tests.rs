//! Both kinds of engine keep the same rules; results arrive through a channel, so no test sleeps.

use super::*;
use crate::runner::RowError;
use std::sync::mpsc::{Receiver, channel};
use tokenrouter_policies::{Draws, SignalSet, Token};
use tokenrouter_protocol::{CacheOp, Row, Sampling, SequenceId};

const PATIENCE: Duration = Duration::from_secs(20);

fn life(restarts: u32) -> Life {
    Life { process: 1, restarts }
}

fn job(start: u32, tokens: &[Token]) -> Job {
    let row = Row {
        sequence: SequenceId(1),
        start,
        tokens: tokens.into(),
        outputs: 1,
        signals: SignalSet::NONE,
        sampling: Sampling::GREEDY,
        draws: Draws::new(0, 0),
    };
    Job { ops: Vec::new(), rows: vec![row] }
}

/// The next token is the sum of the history; 13 makes the step panic.
fn sums() -> Script {
    Script::new(|history| {
        assert!(!history.contains(&13), "thirteen");
        history.iter().sum()
    })
}

fn engine() -> Engine {
    Engine::real(Box::new(Scripted::new(sums())), "test").unwrap()
}

fn attach(engine: &Engine, life: Life) -> Receiver<Done> {
    let (send, receive) = channel();
    engine.attach(life, Arc::new(move |done| drop(send.send(done))));
    receive
}

fn token(done: Done) -> Token {
    done.result.unwrap().outputs[0][0].token
}

#[test]
fn jobs_of_a_life_run_one_after_the_other() {
    let engine = engine();
    let results = attach(&engine, life(1));
    engine.run(life(1), job(0, &[1, 2])).unwrap();
    assert_eq!(token(results.recv_timeout(PATIENCE).unwrap()), 3);
    let mut next = job(1, &[4]);
    next.ops.push(CacheOp::Truncate { sequence: SequenceId(1), to: 1 });
    engine.run(life(1), next).unwrap();
    let done = results.recv_timeout(PATIENCE).unwrap();
    assert_eq!((done.life, token(done)), (life(1), 5));

    let close = Job { ops: vec![CacheOp::Close { sequence: SequenceId(1) }], rows: Vec::new() };
    engine.run(life(1), close).unwrap();
    let report = results.recv_timeout(PATIENCE).unwrap().result.unwrap();
    assert_eq!(report, JobReport { outputs: Vec::new(), blocks_used: 0 });
}

#[test]
fn only_the_attached_life_runs_and_finds_an_empty_cache() {
    let engine = engine();
    assert_eq!(engine.run(life(1), job(0, &[1])), Err(Refused::NotAttached { life: life(1) }));
    let first = attach(&engine, life(1));
    engine.run(life(1), job(0, &[1])).unwrap();
    first.recv_timeout(PATIENCE).unwrap();
    let second = attach(&engine, life(2));
    assert_eq!(engine.run(life(1), job(1, &[1])), Err(Refused::NotAttached { life: life(1) }));
    engine.run(life(2), job(0, &[7])).unwrap();
    assert_eq!(token(second.recv_timeout(PATIENCE).unwrap()), 7);
    assert!(first.try_recv().is_err());
}

#[test]
fn a_panic_reaches_the_life_and_the_next_life_runs() {
    let engine = engine();
    let first = attach(&engine, life(1));
    engine.run(life(1), job(0, &[13])).unwrap();
    let error = first.recv_timeout(PATIENCE).unwrap().result.unwrap_err();
    assert!(matches!(&error, StepError::Panic(text) if text == "thirteen"), "{error}");
    assert_eq!(engine.run(life(1), job(0, &[1])), Err(Refused::Broken));
    let second = attach(&engine, life(2));
    engine.run(life(2), job(0, &[2])).unwrap();
    assert_eq!(token(second.recv_timeout(PATIENCE).unwrap()), 2);
}

#[test]
fn a_mistake_of_the_scheduler_breaks_its_life() {
    let engine = engine();
    let results = attach(&engine, life(1));
    engine.run(life(1), job(5, &[1])).unwrap();
    let error = results.recv_timeout(PATIENCE).unwrap().result.unwrap_err();
    assert!(matches!(error, StepError::Runner(Error::Row(RowError::Start { held: 0, .. }))));
    assert_eq!(engine.run(life(1), job(0, &[1])), Err(Refused::Broken));
}

#[test]
fn a_second_job_is_refused_while_one_is_out_and_dies_with_its_life() {
    let (enter, entered) = channel();
    let (go, gate) = channel::<()>();
    let script = Script::new(move |history| {
        if history == [1] {
            enter.send(()).unwrap();
            gate.recv().unwrap();
        }
        history.iter().sum()
    });
    let engine = Engine::real(Box::new(Scripted::new(script)), "test").unwrap();
    let first = attach(&engine, life(1));
    engine.run(life(1), job(0, &[1])).unwrap();
    entered.recv_timeout(PATIENCE).unwrap();
    assert_eq!(engine.run(life(1), job(1, &[1])), Err(Refused::Busy));

    // Two lives attach under the running step: the waiting job of the first of them never runs.
    let second = attach(&engine, life(2));
    engine.run(life(2), job(0, &[2])).unwrap();
    let third = attach(&engine, life(3));
    engine.run(life(3), job(0, &[3])).unwrap();
    go.send(()).unwrap();
    assert_eq!(token(first.recv_timeout(PATIENCE).unwrap()), 1);
    assert_eq!(token(third.recv_timeout(PATIENCE).unwrap()), 3);
    assert!(second.recv().is_err(), "the life that was replaced got a result");
}

#[test]
fn the_next_job_can_be_given_from_within_deliver() {
    let engine = Arc::new(engine());
    let (send, results) = channel();
    let (again, count) = (Arc::downgrade(&engine), std::sync::atomic::AtomicU32::new(0));
    engine.attach(
        life(1),
        Arc::new(move |done| {
            let start = 1 + count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if let Some(engine) = again.upgrade().filter(|_| start < 50) {
                engine.run(life(1), job(start, &[1])).unwrap();
            }
            send.send(token(done)).unwrap();
        }),
    );
    engine.run(life(1), job(0, &[1])).unwrap();
    let tokens: Vec<Token> = (0..50).map(|_| results.recv_timeout(PATIENCE).unwrap()).collect();
    assert_eq!(tokens, (1..=50).collect::<Vec<_>>());
}

#[test]
fn dropping_the_handle_ends_the_thread() {
    let engine = engine();
    let results = attach(&engine, life(1));
    drop(engine);
    // The sender lives in the thread; it goes when the thread's loop ends.
    assert!(
        results
            .recv_timeout(PATIENCE)
            .is_err_and(|error| { error == std::sync::mpsc::RecvTimeoutError::Disconnected })
    );
}

#[tokio::test]
async fn a_scripted_engine_keeps_the_same_rules_on_tokios_clock() {
    let (send, mut results) = tokio::sync::mpsc::unbounded_channel();
    let deliver: Deliver = Arc::new(move |done| drop(send.send(done)));
    let time = Duration::from_millis(2);
    let engine = Engine::scripted(sums().with_step_time(move |rows| time * rows as u32));
    engine.attach(life(1), Arc::clone(&deliver));
    let began = tokio::time::Instant::now();
    engine.run(life(1), job(0, &[1, 1])).unwrap();
    let done = results.recv().await.unwrap();
    assert!(began.elapsed() >= time);
    assert_eq!((done.elapsed, token(done)), (time, 2));
    engine.run(life(1), job(2, &[13])).unwrap();
    assert!(matches!(results.recv().await.unwrap().result, Err(StepError::Panic(_))));
    assert_eq!(engine.run(life(1), job(0, &[1])), Err(Refused::Broken));
    engine.attach(life(2), deliver);
    engine.run(life(2), job(0, &[9])).unwrap();
    assert_eq!(token(results.recv().await.unwrap()), 9);
    drop(engine);
    assert!(results.recv().await.is_none());
}
