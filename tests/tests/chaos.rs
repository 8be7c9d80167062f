//! Three hundred replies while every kind of actor dies, over HTTP and through the gateway: each is what it is in peace.

use tokenrouter_tests::chaos::Chaos;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_crash_costs_a_token() {
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let chaos = Chaos::start().await;
    let expected = chaos.round(300, false).await;
    assert_eq!(chaos.toll().total(), 0);
    let replies = chaos.round(300, true).await;
    for (at, (reply, expected)) in replies.iter().zip(&expected).enumerate() {
        assert_eq!(reply, expected, "request {at}");
    }
    let toll = chaos.toll();
    println!("{toll}");
    assert!(toll.total() >= 200 && toll.busy >= 100 && toll.handoffs >= 20, "{toll}");
    for kind in ["client", "decode", "peer", "subserver", "http"] {
        assert!(toll.kinds.get(kind).is_some_and(|deaths| *deaths >= 15), "{kind}: {toll}");
    }
    let both = |answer: &&tokenrouter_tests::chaos::Answer| answer.written.len() == 2;
    assert!(expected.iter().filter(both).count() > 150, "both models write most replies");
    chaos.stop(tasks).await;
}
