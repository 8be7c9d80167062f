//! Every actor dies at every point of every kind of reply. First an undisturbed run notes the points it passes; then each
//! of them is passed again with a death there, at its first, a middle and its last time, of the actor itself, of its
//! whole subserver, or of the other model's scheduler. Whatever died, the replies are the same and nothing is left behind.

use crate::kit::*;
use futures::{StreamExt, stream};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokenrouter_actors::{Admin, Faults, Limits, Node, NodeSpec, Point, Stage, Target};
use tokenrouter_policies::{ModelIx, Token};
use tokenrouter_protocol::{Finish, Request};

/// Nodes at a time; they wait more than they work.
const SIDE_BY_SIDE: usize = 12;

/// What happens besides the death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scene {
    /// Three replies are written to their lengths.
    Plain,
    /// A stop string ends them.
    Stopped,
    /// The reader of one of them goes away in the middle.
    Abandoned,
    /// The pools hold one and a half of them.
    Crowded,
}

/// Who dies at the point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    /// Who is there.
    Itself,
    /// Its whole subserver.
    Subserver,
    /// The scheduler of the other model, which holds the request as pending, or works.
    OtherDecode,
}

/// A death: who, where, and how many times the point is passed before.
#[derive(Clone, Copy, Debug)]
struct Death {
    victim: Victim,
    point: Point,
    after: usize,
}

/// What the points of one node remember.
#[derive(Debug, Default)]
struct Watch {
    passed: Mutex<BTreeMap<Point, usize>>,
    admin: OnceLock<Admin>,
}

impl Scene {
    fn length(self) -> u32 {
        if self == Self::Crowded { 58 } else { 24 }
    }

    fn prompts(self) -> Vec<[Token; 3]> {
        (1..=3).map(|n| [n, 9, n + 2]).collect()
    }

    fn request(self, prompt: &[Token]) -> Request {
        let mut request = request(MIXED, prompt, self.length());
        if self == Self::Stopped {
            let reply = expected(prompt, 18);
            request.stop = vec![format!("{} {} ", reply[16], reply[17])];
        }
        request
    }

    /// How many tokens of a reply are committed, and how it ends.
    fn end(self, prompt: &[Token]) -> (u32, Finish) {
        match self {
            Self::Stopped => (18, Finish::Stop(self.request(prompt).stop[0].clone())),
            _ => (self.length(), Finish::Length),
        }
    }

    fn spec(self, faults: Faults) -> NodeSpec {
        let script = || {
            let paced = plain().with_step_time(|_| Duration::from_micros(100));
            if self == Self::Crowded { paced.with_blocks(6) } else { paced }
        };
        let limits = Limits {
            grace: Duration::from_millis(200),
            stall_timeout: Duration::from_millis(400),
            ..Limits::default()
        };
        NodeSpec { limits, faults, ..spec([script(), script()]) }
    }
}

/// Runs a scene once; the points that were passed, and whether the death took place.
async fn play(scene: Scene, death: Option<Death>) -> (BTreeMap<Point, usize>, bool) {
    let watch = Arc::new(Watch::default());
    let node = Node::start(scene.spec(plan(&watch, death))).await.unwrap();
    watch.admin.set(node.gateway().admin()).unwrap();
    let gateway = node.gateway();
    let prompts = scene.prompts();
    let replies = prompts.iter().enumerate().map(|(n, prompt)| {
        let gateway = gateway.clone();
        async move {
            let mut session = gateway.open(scene.request(prompt)).await.unwrap();
            if scene == Scene::Abandoned && n == 1 {
                for _ in 0..9 {
                    session.next().await.unwrap();
                }
                return;
            }
            let (tokens, text, outcome) = read(session).await;
            let (outcome, (length, finish)) = (outcome.unwrap(), scene.end(prompt));
            let expected = expected(prompt, length as usize);
            assert_eq!(tokens, expected, "{scene:?} {death:?}");
            let shown = if scene == Scene::Stopped { 16 } else { expected.len() };
            assert_eq!(text, expected[..shown].iter().map(|t| format!("{t} ")).collect::<String>());
            assert_eq!((outcome.finish, outcome.completion_tokens), (finish, length));
            let shares = outcome.shares.iter().map(|(_, share)| share.committed);
            assert_eq!(shares.sum::<u32>(), length, "every token has one writer");
        }
    });
    let replies = futures::future::join_all(replies);
    let patient = tokio::time::timeout(Duration::from_secs(60), replies).await;
    assert!(patient.is_ok(), "a reply hangs: {scene:?} {death:?}");
    assert_empty(&gateway).await;
    node.stop().await;
    let passed = watch.passed.lock().unwrap().clone();
    let died = death.is_some_and(|death| passed.get(&death.point) > Some(&death.after));
    (passed, died)
}

/// Counts the points, and lets die who is to die.
fn plan(watch: &Arc<Watch>, death: Option<Death>) -> Faults {
    let watch = Arc::clone(watch);
    Faults::new(move |point| {
        let mut passed = watch.passed.lock().unwrap();
        let times = passed.entry(point).or_default();
        *times += 1;
        let Some(death) = death.filter(|d| d.point == point && d.after + 1 == *times) else {
            return false;
        };
        let (model, other) = models(point.actor);
        let target = match death.victim {
            Victim::Itself => return true,
            Victim::Subserver => Target::Subserver(model),
            Victim::OtherDecode => Target::Decode(other),
        };
        // A word on the way while the node still starts finds no admin yet; nothing is at stake then.
        if let Some(admin) = watch.admin.get() {
            admin.kill(target);
        }
        false
    })
}

fn models(actor: Target) -> (ModelIx, ModelIx) {
    let (Target::Client(model)
    | Target::Decode(model)
    | Target::Peer(model)
    | Target::Subserver(model)) = actor
    else {
        panic!("{actor:?} has no points")
    };
    (model, ModelIx(1 - model.0))
}

/// The deaths that are tried at a point which an undisturbed run passed so many times.
fn deaths(point: Point, times: usize) -> Vec<Death> {
    let death = |victim, after| Death { victim, point, after };
    let mut deaths: Vec<Death> = [0, times / 2, times - 1].map(|n| death(Victim::Itself, n)).into();
    deaths.dedup_by_key(|death| death.after);
    deaths.push(death(Victim::Subserver, times / 3));
    deaths.push(death(Victim::OtherDecode, times / 3));
    deaths
}

/// Tries every death in a scene; how many took place at each stage of each kind of actor.
async fn try_all(scene: Scene) -> BTreeMap<(&'static str, Stage, &'static str), usize> {
    let (passed, _) = play(scene, None).await;
    let deaths = passed.into_iter().flat_map(|(point, times)| deaths(point, times));
    let played: Vec<(Death, bool)> = stream::iter(deaths)
        .map(|death| tokio::spawn(async move { (death, play(scene, Some(death)).await.1) }))
        .buffer_unordered(SIDE_BY_SIDE)
        .map(|joined| joined.unwrap())
        .collect()
        .await;
    let (tried, mut died) = (played.len(), BTreeMap::new());
    for (death, _) in played.into_iter().filter(|(_, took_place)| *took_place) {
        let kind = match death.point.actor {
            Target::Client(_) => "client",
            Target::Decode(_) => "decode",
            _ => "peer",
        };
        *died.entry((kind, death.point.stage, death.point.about)).or_default() += 1;
    }
    let all: usize = died.values().sum();
    println!("{scene:?}: {all} of {tried} deaths took place");
    // Some points are passed only when a clock says so, or less often once something died.
    assert!(
        all * 10 >= tried * 7,
        "only {all} of {tried} deaths took place in {scene:?}: {died:?}"
    );
    died
}

/// The stages of a handoff that the plain scene must have died at.
const STAGES: [(&str, Stage, &str); 16] = [
    // Before route, between route and report, after the report.
    ("decode", Stage::Heard, "step"),
    ("decode", Stage::Decided, "step"),
    ("decode", Stage::Said, "handoff"),
    ("decode", Stage::Said, "row"),
    // In the mailbox of the home, between report and grant, after the grant.
    ("client", Stage::Heard, "handoff"),
    ("client", Stage::Decided, "handoff"),
    ("client", Stage::Said, "accepted"),
    ("client", Stage::Said, "grant"),
    // In the mailboxes of the doors.
    ("peer", Stage::Heard, "grant"),
    ("peer", Stage::Said, "grant"),
    ("peer", Stage::Heard, "handoff"),
    // At receive, and while the granted step runs.
    ("decode", Stage::Heard, "grant"),
    ("decode", Stage::Decided, "grant"),
    ("decode", Stage::Said, "job"),
    // While finishing.
    ("client", Stage::Said, "done"),
    ("decode", Stage::Heard, "finish"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_at_any_point_of_a_handoff_changes_nothing() {
    let died = try_all(Scene::Plain).await;
    for stage in STAGES {
        assert!(died.get(&stage).is_some_and(|times| *times >= 2), "{stage:?}: {died:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_around_a_stop_string_changes_nothing() {
    let died = try_all(Scene::Stopped).await;
    assert!(died.contains_key(&("client", Stage::Said, "finish")), "{died:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_around_a_disconnect_leaves_nothing_behind() {
    let died = try_all(Scene::Abandoned).await;
    for stage in [Stage::Heard, Stage::Decided] {
        assert!(died.contains_key(&("client", stage, "cancel")), "{died:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_with_full_pools_changes_nothing() {
    let died = try_all(Scene::Crowded).await;
    assert!(died.contains_key(&("decode", Stage::Said, "missing")), "{died:?}");
}
