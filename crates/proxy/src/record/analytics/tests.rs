use std::sync::mpsc::{Receiver, sync_channel};

use sluicegate_model::analytics::OTHER;

use super::*;

fn buffers(max: usize, workers: usize) -> (Vec<AnalyticsBuffer>, Receiver<Minute>) {
    let (minutes, receiver) = sync_channel(8);
    let limit = Arc::new(Limit { max, left: max.into() });
    ((0..workers).map(|_| AnalyticsBuffer::new(limit.clone(), minutes.clone())).collect(), receiver)
}

/// Records a request of an operation and a consumer.
fn record(buffer: &AnalyticsBuffer, operation: u32, consumer: u32, stats: &WorkerStats) {
    let mut sums = buffer.sums.borrow_mut();
    let minute = &mut sums.minute;
    let route = minute.name("Api shop/orders /orders");
    let operation = minute.name(&format!("operation-{operation}"));
    let target = minute.target(Target { route, operation, ..Target::default() });
    let consumer = minute.name(&format!("shop/consumer-{consumer}"));
    let key = SeriesKey { target, consumer, endpoint: NONE, plan: NONE, status: 200 };
    let sample = Sample { total: 3000, upstream: Some(2000), request_bytes: 10, ..Sample::default() };
    buffer.add(&mut sums, key, &sample, stats);
}

fn requests(batches: &[Batch], which: impl Fn(&[&str; 8]) -> bool) -> u64 {
    let series = batches.iter().flat_map(|batch| batch.series.iter().map(move |series| (batch, series)));
    let of =
        series.filter(|(batch, series)| which(&series.key.names().map(|name| &*batch.names[name as usize])));
    of.map(|(_, series)| series.values.requests).sum()
}

#[test]
fn sums_of_workers_are_merged_by_name() {
    let (buffers, minutes) = buffers(100, 2);
    let stats = WorkerStats::default();
    // The names have other numbers at each worker.
    for (operation, consumer) in [(1, 1), (2, 1), (2, 1)] {
        record(&buffers[0], operation, consumer, &stats);
    }
    for (operation, consumer) in [(2, 1), (3, 2)] {
        record(&buffers[1], operation, consumer, &stats);
    }
    buffers.iter().for_each(AnalyticsBuffer::finish);
    let mut merged = minutes.recv().expect("the sums of the first worker");
    merged.merge(&minutes.recv().expect("the sums of the second worker"));
    let batches: Vec<_> = merged.batches(2).collect();
    assert_eq!(batches.iter().map(|batch| batch.series.len()).collect::<Vec<_>>(), [2, 1]);
    for (operation, consumer, expected) in [("1", "1", 1), ("2", "1", 3), ("3", "2", 1)] {
        let (operation, consumer) = (format!("operation-{operation}"), format!("shop/consumer-{consumer}"));
        let found = requests(&batches, |names| names[4] == operation && names[5] == consumer);
        assert_eq!(found, expected, "{operation} {consumer}");
    }
    let times = batches.iter().flat_map(|batch| &batch.series).fold([0, 0, 0, 0], |sums, series| {
        let values = &series.values;
        let of = [&values.total, &values.upstream, &values.gateway];
        let [total, upstream, gateway] = of.map(|times| times.micros);
        [sums[0] + total, sums[1] + upstream, sums[2] + gateway, sums[3] + values.gateway.histogram.count()]
    });
    assert_eq!(times, [15_000, 10_000, 5_000, 5]);
}

#[test]
fn requests_beyond_the_limit_of_series_lose_their_consumer_and_are_counted() {
    const OPERATIONS: u32 = 20;
    const CONSUMERS: u32 = 100;
    let (buffers, minutes) = buffers(800, 2);
    let stats = WorkerStats::default();
    for _ in 0..2 {
        for operation in 0..OPERATIONS {
            for consumer in 0..CONSUMERS {
                record(&buffers[consumer as usize % 2], operation, consumer, &stats);
            }
        }
    }
    let series: usize = buffers.iter().map(|buffer| buffer.sums.borrow().minute.len()).sum();
    assert!((700..=800 + 2 * OPERATIONS as usize).contains(&series), "{series}");
    buffers.iter().for_each(AnalyticsBuffer::finish);
    let batches: Vec<_> =
        minutes.try_iter().flat_map(|minute| minute.batches(100).collect::<Vec<_>>()).collect();
    assert_eq!(requests(&batches, |_| true), u64::from(2 * OPERATIONS * CONSUMERS));
    for operation in 0..OPERATIONS {
        let name = format!("operation-{operation}");
        assert_eq!(requests(&batches, |names| names[4] == name), u64::from(2 * CONSUMERS), "{name}");
    }
    let other = requests(&batches, |names| names[5] == OTHER);
    assert_eq!(other, stats.analytics_over_limit.get());
    assert!(other > 2000, "{other}");
    // The series are free again.
    assert_eq!(buffers[0].limit.left.load(Ordering::Relaxed), 800);
}

#[test]
fn operations_beyond_every_limit_are_counted_together() {
    let (buffers, minutes) = buffers(64, 1);
    let stats = WorkerStats::default();
    for operation in 0..10_000 {
        record(&buffers[0], operation, operation, &stats);
    }
    assert!(buffers[0].sums.borrow().minute.len() <= 64 + 64 / OVERFLOW + 1);
    buffers[0].finish();
    let batches: Vec<_> =
        minutes.try_iter().flat_map(|minute| minute.batches(100).collect::<Vec<_>>()).collect();
    assert_eq!(requests(&batches, |_| true), 10_000);
    assert_eq!(requests(&batches, |names| names[0] == OTHER), 10_000 - 64 - 8);
}

#[test]
fn requests_count_in_the_minute_in_which_they_end() {
    let (buffers, minutes) = buffers(1 << 20, 1);
    let (buffer, stats) = (&buffers[0], WorkerStats::default());
    let start = now() / 60 * 60;
    buffer.flush_at(start);
    record(buffer, 1, 1, &stats);
    buffer.flush_at(start + 1);
    assert!(minutes.try_recv().is_err(), "the sums of less than 5 s");
    buffer.flush_at(start + 5);
    assert_eq!(minutes.try_recv().map(|minute| (minute.minute, minute.len())).ok(), Some((start / 60, 1)));
    // A minute without requests is not handed over.
    buffer.flush_at(start + 60);
    assert!(minutes.try_recv().is_err());
    for consumer in 0..=FEW as u32 {
        record(buffer, 1, consumer, &stats);
    }
    for second in 60..120 {
        buffer.flush_at(start + second);
        assert!(minutes.try_recv().is_err(), "many sums are handed over at the end of the minute");
    }
    buffer.flush_at(start + 120);
    let minute = minutes.try_recv().map(|minute| (minute.minute, minute.len())).ok();
    assert_eq!(minute, Some((start / 60 + 1, FEW + 1)));
    record(buffer, 1, 1, &stats);
    buffer.finish();
    assert_eq!(minutes.try_recv().map(|minute| minute.minute).ok(), Some(start / 60 + 2));
}

#[test]
fn sums_stay_with_the_worker_while_the_thread_is_behind() {
    let (minutes, receiver) = sync_channel(1);
    let limit = Arc::new(Limit { max: 100, left: 100.into() });
    let (buffer, stats) = (AnalyticsBuffer::new(limit, minutes), WorkerStats::default());
    for minute in 1..=10 {
        record(&buffer, 1, minute, &stats);
        buffer.flush_at((now() / 60 + u64::from(minute)) * 60);
    }
    let first = receiver.try_recv().expect("the first minute");
    buffer.finish();
    let rest = receiver.try_recv().expect("the rest");
    assert_eq!((first.len(), rest.len()), (1, 9));
}

/// The cost of a request, and the memory of 1,000 operations with 1,000 consumers.
///
/// `cargo test --release --workspace --lib measured_analytics -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn measured_analytics() {
    for max in [DEFAULT_MAX_SERIES, 1_000_000] {
        let (buffers, minutes) = buffers(max, 1);
        let (buffer, stats) = (&buffers[0], WorkerStats::default());
        let mut random = fastrand::Rng::with_seed(1);
        let mut sums = buffer.sums.borrow_mut();
        let mut run = |requests: u32, consumers: u32| {
            let start = std::time::Instant::now();
            for _ in 0..requests {
                let key = SeriesKey {
                    target: 2 + random.u32(..1000),
                    consumer: 2 + random.u32(..consumers),
                    status: 200,
                    ..SeriesKey::default()
                };
                let total = random.u64(500..20_000);
                let sample = Sample { total, upstream: Some(total - 200), ..Sample::default() };
                buffer.add(&mut sums, key, &sample, &stats);
            }
            start.elapsed().as_nanos() / u128::from(requests)
        };
        let few = [run(1_000_000, 1), run(1_000_000, 1)];
        let many = run(1_200_000, 1000);
        for name in 0..2000 {
            sums.minute.name(&name.to_string());
            let target = Target { operation: name + 10, ..Target::default() };
            sums.minute.target(target);
        }
        let (series, bytes) = (sums.minute.len(), sums.minute.bytes());
        drop(sums);
        buffer.finish();
        let minute = minutes.try_recv().expect("the minute");
        let start = std::time::Instant::now();
        let encoded: usize = minute.batches(8192).map(|batch| batch.encode().len()).sum();
        println!(
            "max {max}: {few:?} ns with 1,000 series, {many} ns with {series} series; {bytes} bytes; encoded {encoded} bytes in {:?}",
            start.elapsed()
        );
    }
}
