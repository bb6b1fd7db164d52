//! Tests of the tables, the background work and queries, with SQLite and PostgreSQL.

pub(crate) mod server;

use bytes::Bytes;
use serde_json::Value as Json;
use sluicegate_model::analytics::{Batch, Key, Series, Values};
use tempfile::TempDir;

use crate::background::{Retention, delete_names, work};
use crate::packing::pack;
use crate::query::Query;
use crate::schema::{Level, migrate};
use crate::sql::Sql;
use crate::store::{now, write_for_test};
use crate::{Location, Store, StoreOptions, Stored};
use server::Server;

const DAY: i64 = 86_400;
const WAIT: std::time::Duration = std::time::Duration::from_secs(5);

/// A batch of a minute: two operations and two consumers, with `requests` requests each, of which 10 % fail.
fn batch(minute: i64, requests: u64) -> Batch {
    let names =
        ["", "Api shop/orders /orders", "shop/orders", "v1", "list", "create", "shop/ann", "shop/bob"];
    let mut batch =
        Batch { minute: minute as u64, names: names.map(str::to_owned).into(), series: Vec::new() };
    for (operation, consumer, status, share) in
        [(4, 6, 200, 9), (4, 6, 503, 1), (4, 7, 200, 10), (5, 6, 201, 9), (5, 6, 429, 1), (5, 7, 201, 10)]
    {
        let requests = requests * share / 10;
        let mut values = Values { requests, request_bytes: 10 * requests, ..Values::default() };
        values.limited = if status == 429 { requests } else { 0 };
        values.total.record(if operation == 4 { 10_000 } else { 100_000 }, requests);
        values.upstream.record(9_000, requests);
        values.gateway.record(1_000, requests);
        let key = Key { route: 1, api: 2, version: 3, operation, consumer, status, ..Key::default() };
        batch.series.push(Series { key, values });
    }
    batch
}

/// A database for one test, and the time there.
struct Database<'s> {
    sql: &'s mut dyn Sql,
    sequence: u64,
}

impl Database<'_> {
    fn store(&mut self, batch: &Batch, now: i64) {
        self.sequence += 1;
        let stored = write_for_test(self.sql, ("one", self.sequence), batch, Retention::default(), now);
        assert_eq!(stored.expect("stored"), Stored::New);
    }

    fn background(&mut self, now: i64) {
        while work(self.sql, Retention::default(), now).expect("worked") {}
    }

    fn query(&mut self, query: &str, now: i64) -> Json {
        let query = Query::parse(query, now).expect("valid");
        let answer = query.run(self.sql, Retention::default(), now).expect("answered");
        let mut text = Vec::new();
        answer.write(&mut text).expect("written");
        serde_json::from_slice(&text).expect("JSON")
    }

    fn requests(&mut self, query: &str, now: i64) -> u64 {
        let answer = self.query(query, now);
        let groups = answer["groups"].as_array().expect("groups");
        groups.iter().map(|group| group["total"]["requests"].as_u64().expect("a number")).sum()
    }

    fn rows(&mut self, level: Level) -> usize {
        let sql = format!("SELECT id FROM {}", level.table());
        self.sql.fetch(&sql, &[]).expect("rows").len()
    }
}

type Case = fn(&mut Database<'_>);

const CASES: [Case; 5] = [
    repeated_batch_counts_once,
    answers_have_groups_points_and_quantiles,
    sums_are_the_same_at_every_granularity,
    old_rows_are_deleted,
    batches_of_a_minute_become_one_row_of_each_series,
];

fn run(case: Case, location: &Location) {
    let mut sql = location.connect(WAIT).expect("a connection");
    migrate(&mut *sql).expect("migrated");
    migrate(&mut *sql).expect("migrated before");
    case(&mut Database { sql: &mut *sql, sequence: 0 });
}

#[test]
fn sqlite_in_memory_and_in_a_file() {
    for case in CASES {
        run(case, &Location::Memory);
        let dir = TempDir::new().expect("a directory");
        run(case, &Location::Sqlite(dir.path().join("analytics.db")));
    }
}

#[test]
fn postgresql() {
    let Some(server) = Server::start() else { return };
    for (nth, case) in CASES.into_iter().enumerate() {
        run(case, &server.database(&format!("case{nth}")));
    }
    let location = server.database("shared");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(two_stores_share_a_database(&location));
    let wrong = server.database("shared").with_password("wrong");
    let error = wrong.connect(WAIT).err().expect("a wrong password").to_string();
    assert!(error.contains("password authentication failed"), "{error}");
    store_follows_an_outage(server, &runtime);
}

/// A sample with a few minutes of a day long ago.
const NOON: i64 = 1_800_000_000 / DAY * DAY + 12 * 3600;

fn repeated_batch_counts_once(database: &mut Database<'_>) {
    let batch = batch(NOON / 60, 10);
    for (instance, sequence, expected) in [
        ("one", 1, Stored::New),
        ("one", 1, Stored::Before),
        ("two", 1, Stored::New),
        ("one", 2, Stored::New),
        ("two", 1, Stored::Before),
    ] {
        let stored =
            write_for_test(database.sql, (instance, sequence), &batch, Retention::default(), NOON + 60);
        assert_eq!(stored.expect("stored"), expected, "{instance} {sequence}");
    }
    assert_eq!(database.requests("", NOON + 60), 3 * 40);
}

fn answers_have_groups_points_and_quantiles(database: &mut Database<'_>) {
    for minute in [0, 1, 3] {
        database.store(&batch(NOON / 60 + minute, 10 * (minute as u64 + 1)), NOON + 300);
    }
    let now = NOON + 300;
    let answer = database.query("since=5m&by=operation&step=60", now);
    let groups = answer["groups"].as_array().expect("groups");
    assert_eq!((answer["truncated"].as_bool(), groups.len()), (Some(false), 2), "{answer}");
    let list = groups.iter().find(|group| group["of"]["operation"] == "list").expect("the operation");
    let total = &list["total"];
    assert_eq!(total["requests"], 140, "{answer}");
    assert_eq!(total["status"]["5xx"], 7);
    assert_eq!(
        (&total["errors"], &total["limited"], &total["request_bytes"]),
        (&7.into(), &0.into(), &1400.into())
    );
    for (of, quantile, millis) in [
        ("latency_ms", "p50", 10.0),
        ("latency_ms", "p99", 10.0),
        ("upstream_ms", "mean", 9.0),
        ("gateway_ms", "p95", 1.0),
    ] {
        let found = total[of][quantile].as_f64().expect("a number");
        assert!((found / millis - 1.0).abs() < 0.09, "{of} {quantile}: {found}");
    }
    let points: Vec<_> =
        list["points"].as_array().expect("points").iter().map(|point| &point["requests"]).collect();
    assert_eq!(points, [20, 40, 0, 80, 0], "{answer}");
    assert_eq!(list["points"][3]["time"], "2027-01-15T12:03:00Z");
    // 10 % of the requests of one consumer fail.
    for (query, expected) in [
        ("where=status:5xx", 7),
        ("where=status:429", 7),
        ("where=status:5xx&where=status:429", 14),
        ("where=consumer:shop/ann", 140),
        ("where=consumer:shop/ann&where=operation:list&where=status:200", 63),
        ("where=consumer:shop/unknown", 0),
        ("where=plan:", 280),
        ("where=plan:&by=status", 280),
        ("where=api:shop/orders&by=route,consumer", 280),
    ] {
        assert_eq!(database.requests(query, now), expected, "{query}");
    }
    let answer = database.query("by=consumer,status&limit=2", now);
    assert_eq!(
        (answer["truncated"].as_bool(), answer["groups"].as_array().map(Vec::len)),
        (Some(true), Some(2))
    );
    let most: Vec<_> = (0..2).map(|nth| answer["groups"][nth]["total"]["requests"].as_u64()).collect();
    assert!(most.iter().all(|requests| *requests == Some(70)), "{answer}");
    let csv = Query::parse("by=operation,status&format=csv", now).expect("valid");
    let answer = csv.run(database.sql, Retention::default(), now).expect("answered");
    let mut text = Vec::new();
    answer.write(&mut text).expect("written");
    let text = String::from_utf8(text).expect("text");
    assert!(text.starts_with("operation,status,time,requests,"), "{text}");
    assert!(text.contains("\nlist,503,2027-01-15T11:05:00Z,7,70,0,0,0,0,7,0,7,0,0,0,"), "{text}");
    let columns: Vec<_> = text.lines().map(|line| line.split(',').count()).collect();
    assert_eq!(columns, [27; 5], "{text}");
}

fn sums_are_the_same_at_every_granularity(database: &mut Database<'_>) {
    let start = NOON / DAY * DAY;
    // A batch every half hour for three days.
    let mut stored = 0;
    for half in 0..144 {
        let time = start + half * 1800;
        database.store(&batch(time / 60, 10), time + 60);
        stored += 40;
    }
    let now = start + 3 * DAY;
    let queries = ["since=4d", "since=4d&step=3600", "since=20d", "since=20d&step=86400&by=status"];
    for query in queries {
        assert_eq!(database.requests(query, now), stored, "{query}, before the background work");
    }
    // Three days: the rows of the first day are deleted.
    database.background(now);
    assert_eq!(database.rows(Level::Hours), 71 * 6, "all hours that ended");
    assert_eq!(database.rows(Level::Days), 2 * 6);
    assert_eq!(database.rows(Level::Minutes), 96 * 6);
    for query in queries {
        assert_eq!(database.requests(query, now), stored, "{query}");
    }
    database.background(now + 3600);
    for query in queries {
        assert_eq!(database.requests(query, now + 3600), stored, "{query}, an hour later");
    }
    // Late batches: of an hour that is summed up, and of an hour whose minutes are deleted.
    for hours in [20, 70] {
        database.store(&batch((now - hours * 3600) / 60, 10), now);
        stored += 40;
        for query in queries {
            assert_eq!(database.requests(query, now), stored, "{query}, {hours} hours late");
        }
    }
    database.background(now + 3600);
    for query in queries {
        assert_eq!(database.requests(query, now + 3600), stored, "{query}, with late batches");
    }
    let by_day = database.query("since=3d&step=86400", now);
    let points = by_day["groups"][0]["points"].as_array().expect("points");
    let days: Vec<_> = points.iter().map(|point| point["requests"].as_u64()).collect();
    assert_eq!(days, [Some(48 * 40 + 40), Some(48 * 40), Some(48 * 40 + 40)], "{by_day}");
}

fn old_rows_are_deleted(database: &mut Database<'_>) {
    let retention = Retention::default();
    for day in [0, 30, 100] {
        database.store(&batch((NOON + day * DAY) / 60, 10), NOON + day * DAY + 60);
        database.background(NOON + day * DAY + 3 * 3600);
    }
    let mut at = |days: i64| {
        database.background(NOON + days * DAY);
        [Level::Minutes, Level::Hours, Level::Days].map(|level| database.rows(level) / 6)
    };
    assert_eq!(at(101), [1, 1, 3], "after a day");
    assert_eq!(at(103), [0, 1, 3], "after three days");
    assert_eq!(at(171), [0, 0, 3], "after 71 days");
    assert_eq!(at(100 + 732), [0, 0, 0]);
    let names = database.sql.fetch("SELECT id FROM sluicegate_names", &[]).expect("names").len();
    assert_eq!(names, 7);
    // A name that a writer uses stays.
    let today = now() / DAY;
    assert_eq!(delete_names(database.sql, today).expect("deleted"), 0);
    assert_eq!(delete_names(database.sql, today + 20).expect("deleted"), 7);
    assert_eq!(retention, Retention { minutes: 2, hours: 60, days: 730 });
}

fn batches_of_a_minute_become_one_row_of_each_series(database: &mut Database<'_>) {
    for _ in 0..12 {
        database.store(&batch(NOON / 60, 10), NOON + 30);
    }
    assert_eq!(database.rows(Level::Minutes), 12 * 6);
    database.background(NOON + 60);
    assert_eq!(database.rows(Level::Minutes), 12 * 6, "the minute may have further batches");
    database.background(NOON + 200);
    assert_eq!(database.rows(Level::Minutes), 6);
    assert_eq!(database.requests("", NOON + 200), 12 * 40);
}

/// Two control planes write batches with the same names at once.
async fn two_stores_share_a_database(location: &Location) {
    let start = || Store::start(StoreOptions { location: location.clone(), ..StoreOptions::default() });
    let stores = [start().expect("a store"), start().expect("a store")];
    let minute = now() / 60;
    let mut sequence = 0;
    for _ in 0..20 {
        sequence += 1;
        let body = Bytes::from(pack(&batch(minute, 10)));
        let (one, two) = tokio::join!(
            store(&stores[0], "one", sequence, &body),
            store(&stores[1], "two", sequence, &body)
        );
        assert_eq!([one, two], [Stored::New; 2]);
        // The data plane has connected to the other control plane, and sends the batch again.
        assert_eq!(store(&stores[1], "one", sequence, &body).await, Stored::Before);
    }
    let answer = tokio::task::spawn_blocking(move || stores[0].answer("since=5m")).await;
    let mut text = Vec::new();
    answer.expect("a thread").expect("an answer").write(&mut text).expect("written");
    let answer: Json = serde_json::from_slice(&text).expect("JSON");
    assert_eq!(answer["groups"][0]["total"]["requests"], 2 * 20 * 40, "{answer}");
}

/// Stores as a data plane does: again after a failure.
async fn store(store: &Store, instance: &str, sequence: u64, body: &Bytes) -> Stored {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        match store.store(instance, sequence, body.clone()).await {
            Ok(stored) => return stored,
            Err(error) => assert!(std::time::Instant::now() < end, "{error}"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// The store connects again after the server has restarted, and loses nothing.
fn store_follows_an_outage(mut server: Server, runtime: &tokio::runtime::Runtime) {
    let location = server.database("outage");
    let store_of = Store::start(StoreOptions { location, ..StoreOptions::default() }).expect("a store");
    let body = Bytes::from(pack(&batch(now() / 60, 10)));
    assert_eq!(runtime.block_on(store(&store_of, "one", 1, &body)), Stored::New);
    server.stop();
    let error = runtime.block_on(store_of.store("one", 2, body.clone())).expect_err("no server");
    assert!(matches!(error, crate::StoreError::Database(_)), "{error}");
    assert!(store_of.answer("").is_err());
    server.begin();
    assert_eq!(runtime.block_on(store(&store_of, "one", 2, &body)), Stored::New);
    assert!(store_of.status().failures > 0);
    let mut text = Vec::new();
    store_of.answer("since=5m").expect("an answer").write(&mut text).expect("written");
    let answer: Json = serde_json::from_slice(&text).expect("JSON");
    assert_eq!(answer["groups"][0]["total"]["requests"], 2 * 40, "{answer}");
}

#[tokio::test]
async fn file_has_the_sums_after_a_restart_and_knows_stored_batches() {
    let dir = TempDir::new().expect("a directory");
    let location = Location::Sqlite(dir.path().join("analytics.db"));
    let body = Bytes::from(pack(&batch(now() / 60 - 1, 10)));
    for expected in [Stored::New, Stored::Before] {
        let store_of = Store::start(StoreOptions { location: location.clone(), ..StoreOptions::default() });
        let store_of = store_of.expect("a store");
        assert_eq!(store(&store_of, "one", 1, &body).await, expected);
        let answer = store_of.answer("since=5m&by=consumer").expect("an answer");
        let mut text = Vec::new();
        answer.write(&mut text).expect("written");
        let answer: Json = serde_json::from_slice(&text).expect("JSON");
        assert_eq!(answer["groups"][1]["total"]["requests"], 20, "{answer}");
    }
}

#[tokio::test]
async fn store_without_a_usable_file_reports_the_failure_and_uses_the_file_later() {
    let dir = TempDir::new().expect("a directory");
    let folder = dir.path().join("later");
    let location = Location::Sqlite(folder.join("analytics.db"));
    let store_of = Store::start(StoreOptions { location, ..StoreOptions::default() }).expect("a store");
    let body = Bytes::from(pack(&batch(now() / 60, 10)));
    assert!(store_of.store("one", 1, body.clone()).await.is_err());
    std::fs::create_dir(&folder).expect("the folder");
    assert_eq!(store(&store_of, "one", 1, &body).await, Stored::New);
    assert!(store_of.store("one", 2, Bytes::from_static(b"nonsense")).await.is_err());
    assert_eq!(store_of.status().malformed, 1);
}

#[test]
fn tables_of_a_newer_version_are_left_alone() {
    let dir = TempDir::new().expect("a directory");
    let location = Location::Sqlite(dir.path().join("analytics.db"));
    let mut sql = location.connect(WAIT).expect("a connection");
    migrate(&mut *sql).expect("migrated");
    sql.run("UPDATE sluicegate_schema SET version = 99").expect("changed");
    let error = migrate(&mut *sql).expect_err("a newer version").to_string();
    assert!(error.contains("version 99") && error.contains("update the program"), "{error}");
}
