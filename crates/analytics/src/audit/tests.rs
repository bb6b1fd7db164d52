//! Tests of the audit trail, with SQLite and PostgreSQL.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};
use sluicegate_model::audit::{Actor, Observed, Place, Report, Requested, SECRET, Subject, Version};

use super::query::Query;
use super::write::{Rules, Writer};
use super::{Audit, AuditOptions, Chain, ChainError, now, tables};
use crate::Location;
use crate::sql::{Isolation, Sql, Value};
use crate::tests::server::Server;

const NOW: i64 = 1_800_000_000_000;
const MINUTE: i64 = 60_000;
const DAY: i64 = 86_400_000;
const WAIT: Duration = Duration::from_secs(5);

/// An audit trail of one process at a time.
struct Trail<'s> {
    sql: &'s mut dyn Sql,
    rules: Rules,
    now: i64,
}

impl Trail<'_> {
    fn take(&mut self, report: &Report) -> u64 {
        let (rules, now) = (self.rules.clone(), self.now);
        let written = self.sql.transaction(Isolation::Committed, |sql| {
            let mut writer = Writer::new(sql, &rules, now)?;
            writer.take(report)?;
            Ok::<_, crate::sql::SqlError>(writer.written)
        });
        written.expect("written")
    }

    fn change(&mut self, observed: Observed) -> u64 {
        self.take(&Report::Change(observed))
    }

    fn lines(&mut self, query: &str) -> Vec<String> {
        let query = Query::parse(query, self.now / 1000).expect("valid");
        let mut text = Vec::new();
        query.run(self.sql).expect("an answer").write(&mut text).expect("written");
        String::from_utf8(text).expect("UTF-8").lines().map(str::to_owned).collect()
    }

    fn entries(&mut self, query: &str) -> Vec<Json> {
        self.lines(query).iter().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    fn last(&mut self) -> Json {
        self.entries("limit=1").remove(0)
    }

    fn prune(&mut self, days: u32) {
        let (rules, now) = (self.rules.clone(), self.now);
        let pruned =
            self.sql.transaction(Isolation::Committed, |sql| Writer::new(sql, &rules, now)?.prune(days));
        pruned.expect("pruned");
    }

    /// The check of the exported chain.
    fn verify(&mut self) -> Result<super::Verified, ChainError> {
        let mut chain = Chain::default();
        for line in self.lines("after=0&limit=1000") {
            chain.take(&line)?;
        }
        let head = tables::head(self.sql).expect("a head");
        chain.finish(Some((head.number, &head.hash)))
    }

    fn sql(&mut self, text: &str) {
        self.sql.run(text).expect("done");
    }
}

fn subject(name: &str) -> Subject {
    Subject { kind: "Plan".into(), namespace: "shop".into(), name: name.into() }
}

/// A version of a manifest.
fn written(name: &str, content: &Json) -> Observed {
    let content: Box<str> = content.to_string().into();
    let hash = format!("1:{}", super::entry::hash(&content)).into();
    let version = Version {
        uid: "".into(),
        number: None,
        generation: None,
        created: None,
        manager: None,
        content,
        hash,
    };
    Observed {
        subject: subject(name),
        version: Some(Arc::new(version)),
        uid: "".into(),
        time: NOW,
        actor: Actor::Owner("ann".into()),
        place: Some(Place { file: "plans.yaml".into(), line: 3 }),
        fault: None,
        is_used: true,
    }
}

/// A version of a cluster.
fn stored(name: &str, uid: &str, number: i64, content: &Json) -> Observed {
    let of = written(name, content);
    let version = Version {
        uid: uid.into(),
        number: Some(number),
        generation: Some(1),
        created: Some(NOW),
        ..Version::clone(of.version.as_ref().expect("a version"))
    };
    Observed {
        version: Some(version.into()),
        uid: uid.into(),
        actor: Actor::Manager("kubectl".into()),
        place: None,
        ..of
    }
}

fn gone(of: &Observed) -> Observed {
    Observed { version: None, actor: Actor::Unknown, ..of.clone() }
}

fn requests(number: u32) -> Json {
    json!({"spec": {"requests": number}})
}

type Case = fn(&mut Trail<'_>);

const CASES: [Case; 9] = [
    changes_have_their_fields_and_their_writer,
    start_records_the_changes_since_the_last_process,
    several_control_planes_record_a_change_once,
    user_is_joined_by_the_request,
    object_created_again_is_deleted_and_created,
    object_that_is_not_used_any_more_has_a_last_entry,
    chain_shows_each_change_of_the_table,
    retention_removes_whole_prefixes_and_notes_it,
    another_form_of_versions_is_no_change,
];

fn run(case: Case, location: &Location) {
    let mut sql = location.connect(WAIT).expect("a connection");
    tables::migrate(&mut *sql).expect("migrated");
    tables::migrate(&mut *sql).expect("migrated before");
    let rules = Rules { scope: "the cluster".into(), may_be_absent: &["Secret"] };
    case(&mut Trail { sql: &mut *sql, rules, now: NOW });
}

#[test]
fn sqlite_in_memory_and_in_a_file() {
    for case in CASES {
        run(case, &Location::Memory);
        let dir = tempfile::TempDir::new().expect("a directory");
        run(case, &Location::Sqlite(dir.path().join("audit.db")));
    }
}

#[test]
fn postgresql() {
    let Some(mut server) = Server::start() else { return };
    for (nth, case) in CASES.into_iter().enumerate() {
        run(case, &server.database(&format!("audit{nth}")));
    }
    processes_share_a_database(&server.database("shared"));
    changes_wait_while_the_database_is_away(&mut server);
}

fn changes_have_their_fields_and_their_writer(trail: &mut Trail<'_>) {
    assert_eq!(trail.take(&Report::Start(vec![written("gold", &requests(1))])), 1);
    let begun = trail.last();
    assert_eq!((&begun["operation"], &begun["number"]), (&json!("started"), &json!(1)));
    assert_eq!(trail.change(written("gold", &requests(2))), 1);
    let changed = trail.last();
    assert_eq!(changed["changes"], json!([{"field": "/spec/requests", "old": 1, "new": 2}]));
    assert_eq!(changed["actor"], json!({"type": "owner", "name": "ann"}));
    assert_eq!(changed["manifest"], json!({"file": "plans.yaml", "line": 3}));
    assert_eq!(changed["time"], "2027-01-15T08:00:00.000Z");
    assert_eq!(changed["applied"], true);
    assert_eq!(trail.change(written("gold", &requests(2))), 0, "no change");
    let faulty = Observed { fault: Some("spec.requests".into()), ..written("gold", &requests(0)) };
    assert_eq!(trail.change(faulty), 1);
    assert_eq!(trail.last()["applied"], false);
    let secret = |print: &str| json!({"data": {"key": {SECRET: print}}});
    trail.change(written("silver", &secret("ab12")));
    trail.change(written("silver", &secret("cd34")));
    let last = trail.last();
    assert_eq!(last["changes"], json!([{"field": "/data/key", "secret": "changed"}]));
    assert!(!last.to_string().contains("ab12") && !last.to_string().contains("cd34"), "{last}");
    assert_eq!(trail.change(gone(&written("gold", &requests(0)))), 1);
    assert_eq!(trail.last()["operation"], "deleted");
    assert_eq!(trail.change(gone(&written("gold", &requests(0)))), 0);
    assert_eq!(trail.entries("name=silver&operation=created&actor=ann&kind=Plan&namespace=shop").len(), 1);
    assert_eq!(trail.entries("actor=bob").len(), 0);
    let numbers =
        |entries: Vec<Json>| entries.iter().map(|entry| entry["number"].as_i64()).collect::<Vec<_>>();
    assert_eq!(numbers(trail.entries("before=4&limit=2")), [Some(3), Some(2)]);
    assert_eq!(numbers(trail.entries("after=4")), [Some(5), Some(6)]);
    assert_eq!(trail.entries("since=1m").len(), 6);
    trail.now += 10 * MINUTE;
    assert_eq!(trail.entries("since=1m").len(), 0);
    assert_eq!(trail.verify().expect("a chain").entries, 6);
}

fn start_records_the_changes_since_the_last_process(trail: &mut Trail<'_>) {
    let objects = |objects: &[(&str, u32)]| {
        Report::Start(objects.iter().map(|(name, number)| written(name, &requests(*number))).collect())
    };
    assert_eq!(trail.take(&objects(&[("a", 1), ("b", 1), ("c", 1)])), 1);
    assert_eq!(trail.take(&objects(&[("a", 1), ("b", 1), ("c", 1)])), 0, "nothing changed");
    assert_eq!(trail.take(&objects(&[("a", 1), ("b", 2), ("d", 1)])), 3);
    let said: Vec<_> =
        trail.entries("after=1").iter().map(|of| format!("{} {}", of["operation"], of["name"])).collect();
    assert_eq!(said, [r#""changed" "b""#, r#""created" "d""#, r#""deleted" "c""#]);
    assert_eq!(trail.entries("name=b")[0]["changes"][0]["old"], 1);
    // Not all Secrets of a cluster are read.
    let secret = Observed {
        subject: Subject { kind: "Secret".into(), ..subject("s") },
        ..stored("s", "u", 7, &json!({}))
    };
    trail.change(secret);
    assert_eq!(trail.take(&objects(&[("a", 1), ("b", 2), ("d", 1)])), 0);
    // An object that existed when the gateway last recorded a change was not used then.
    trail.now += DAY;
    let old = |created: i64| {
        let mut of = stored("e", "x", 9, &requests(1));
        let version =
            Version { created: Some(created), ..Version::clone(of.version.as_ref().expect("a version")) };
        of.version = Some(version.into());
        Observed { time: NOW + DAY, ..of }
    };
    let start = |of: Observed| {
        Report::Start(vec![
            written("a", &requests(1)),
            written("b", &requests(2)),
            written("d", &requests(1)),
            of,
        ])
    };
    trail.take(&start(old(NOW - DAY)));
    assert_eq!(trail.last()["operation"], "found");
    trail.change(gone(&old(NOW)));
    let again = Observed { uid: "y".into(), ..old(NOW + DAY - MINUTE / 2) };
    trail.take(&start(again));
    assert_eq!(trail.last()["operation"], "created");
}

fn several_control_planes_record_a_change_once(trail: &mut Trail<'_>) {
    let versions: Vec<_> =
        [1, 2, 3].map(|number| stored("gold", "u", number, &requests(number as u32))).into();
    assert_eq!(trail.take(&Report::Start(vec![versions[0].clone()])), 1);
    // The first control plane.
    assert_eq!(trail.change(versions[1].clone()), 1);
    assert_eq!(trail.change(versions[2].clone()), 1);
    // The second is late, and has not missed the second version.
    assert_eq!(trail.change(versions[1].clone()), 0);
    assert_eq!(trail.change(versions[2].clone()), 0);
    assert_eq!(trail.change(gone(&versions[2])), 1);
    assert_eq!(trail.change(versions[2].clone()), 0, "late after the end");
    assert_eq!(trail.change(gone(&versions[2])), 0);
    // A control plane that starts with an older list does not delete what it has not seen.
    let new = stored("new", "n", 9, &requests(1));
    assert_eq!(trail.change(new), 1);
    assert_eq!(trail.take(&Report::Start(vec![stored("other", "o", 5, &requests(1))])), 1);
    trail.now += 2 * MINUTE;
    assert_eq!(trail.take(&Report::Start(vec![stored("other", "o", 5, &requests(1))])), 1);
    assert_eq!(trail.last()["operation"], "deleted");
    // A restored backup has a version that no control plane has seen, and its number is low.
    let other = |number, requests: u32| stored("other", "o", number, &self::requests(requests));
    assert_eq!(trail.change(other(20, 2)), 1);
    assert_eq!(trail.change(other(12, 3)), 0, "late");
    trail.now += 15 * MINUTE;
    assert_eq!(trail.change(other(12, 3)), 1, "restored");
}

fn user_is_joined_by_the_request(trail: &mut Trail<'_>) {
    let of = stored("gold", "u", 5, &requests(5));
    let request = |hash: &str, user: &str, time: i64| {
        let (hash, user, groups) = (hash.into(), user.into(), vec!["admins".into()]);
        Report::Request(Requested { subject: subject("gold"), hash, user, groups, time })
    };
    trail.take(&Report::Start(vec![]));
    let hash = of.version.as_ref().expect("a version").hash.clone();
    trail.take(&request("1:other", "eve", NOW - 1));
    trail.take(&request(&hash, "bob", NOW - 5));
    trail.take(&request(&hash, "alice", NOW - 1));
    trail.change(of.clone());
    assert_eq!(trail.last()["actor"], json!({"type": "user", "name": "alice", "groups": ["admins"]}));
    trail.change(stored("gold", "u", 6, &requests(6)));
    assert_eq!(trail.last()["actor"], json!({"type": "manager", "name": "kubectl"}), "no request");
    trail.take(&request("", "carol", NOW - 1));
    trail.change(gone(&of));
    assert_eq!(trail.last()["actor"]["name"], "carol");
    // The database was away for an hour. The user is known all the same.
    trail.now += 60 * MINUTE;
    let last = stored("gold", "v", 9, &requests(9));
    let hash = last.version.as_ref().expect("a version").hash.clone();
    trail.take(&request(&hash, "dora", NOW - 1));
    trail.change(last);
    assert_eq!(trail.last()["actor"]["name"], "dora");
    let tidied = trail.sql.transaction(Isolation::Committed, |sql| {
        let rules = Rules { scope: String::new(), may_be_absent: &[] };
        Writer::new(sql, &rules, NOW + 60 * MINUTE)?.tidy()
    });
    tidied.expect("tidied");
    let rows = trail.sql.fetch("SELECT time FROM sluicegate_audit_requests", &[]).expect("rows");
    assert!(rows.is_empty());
}

fn object_created_again_is_deleted_and_created(trail: &mut Trail<'_>) {
    trail.take(&Report::Start(vec![stored("gold", "one", 1, &requests(1))]));
    assert_eq!(trail.take(&Report::Start(vec![stored("gold", "two", 4, &requests(2))])), 2);
    let said: Vec<_> =
        trail.entries("after=1").iter().map(|of| (of["operation"].clone(), of["uid"].clone())).collect();
    assert_eq!(said, [(json!("deleted"), json!("one")), (json!("created"), json!("two"))]);
    assert_eq!(trail.change(gone(&stored("gold", "one", 1, &requests(1)))), 0, "the end of the first");
}

fn object_that_is_not_used_any_more_has_a_last_entry(trail: &mut Trail<'_>) {
    trail.take(&Report::Start(vec![stored("gold", "u", 1, &requests(1))]));
    let unused = |number, requests: u32| Observed {
        is_used: false,
        ..stored("gold", "u", number, &self::requests(requests))
    };
    assert_eq!(trail.change(unused(2, 2)), 1);
    assert_eq!(trail.change(unused(3, 3)), 0);
    assert_eq!(trail.change(gone(&unused(3, 3))), 0);
}

fn chain_shows_each_change_of_the_table(trail: &mut Trail<'_>) {
    trail.take(&Report::Start(vec![]));
    for number in 1..5 {
        trail.change(written("gold", &requests(number)));
    }
    let verified = trail.verify().expect("a chain");
    assert_eq!((verified.entries, verified.first, verified.last), (5, 1, 5));
    let rows =
        trail.sql.fetch("SELECT entry, hash FROM sluicegate_audit WHERE number = 3", &[]).expect("rows");
    let [Value::Text(entry), Value::Text(hash)] = &rows[0][..] else { panic!("{rows:?}") };
    let tampered = entry.replace("ann", "eve");
    assert_ne!(*entry, tampered);
    trail.sql(&format!("UPDATE sluicegate_audit SET entry = '{tampered}' WHERE number = 3"));
    assert!(matches!(trail.verify(), Err(ChainError::Changed(3))), "{:?}", trail.verify());
    let forged = super::entry::hash(&tampered);
    trail.sql(&format!("UPDATE sluicegate_audit SET hash = '{forged}' WHERE number = 3"));
    assert!(matches!(trail.verify(), Err(ChainError::Missing { before: 3, after: 4 })));
    trail.sql(&format!("UPDATE sluicegate_audit SET entry = '{entry}', hash = '{hash}' WHERE number = 3"));
    trail.verify().expect("restored");
    trail.sql("UPDATE sluicegate_audit SET number = 9 WHERE number = 3");
    assert!(matches!(trail.verify(), Err(ChainError::Missing { before: 2, after: 4 })));
    trail.sql("DELETE FROM sluicegate_audit WHERE number = 9 OR number < 3");
    assert!(matches!(trail.verify(), Err(ChainError::Start(4))));
    trail.sql("DELETE FROM sluicegate_audit WHERE number = 5");
    assert!(matches!(trail.verify(), Err(ChainError::Start(4) | ChainError::End { .. })));
    let anchored = Chain::with_anchor(Some((5, verified.hash)));
    assert!(matches!(anchored.finish(None), Err(ChainError::Anchor(5))));
}

fn retention_removes_whole_prefixes_and_notes_it(trail: &mut Trail<'_>) {
    trail.take(&Report::Start(vec![]));
    for day in 0..10 {
        trail.now = NOW + day * DAY;
        trail.change(Observed { time: trail.now, ..written("gold", &requests(day as u32)) });
        trail.prune(5);
    }
    let verified = trail.verify().expect("a chain");
    assert!(verified.first > 1, "{verified:?}");
    let pruned = trail.entries("operation=pruned");
    assert_eq!(pruned[0]["removed"]["through"], verified.first - 1);
    let times = trail.entries("after=0");
    assert!(times[0]["time"].as_str() >= Some("2027-01-19"), "{}", times[0]);
    // Without the note, the removal would be a fault.
    let last = pruned.last().expect("a note")["number"].clone();
    trail.sql(&format!("DELETE FROM sluicegate_audit WHERE number <= {last}"));
    assert!(matches!(trail.verify(), Err(ChainError::Start(_))) || pruned.len() > 1);
}

fn another_form_of_versions_is_no_change(trail: &mut Trail<'_>) {
    let of = |form: u32, requests: u32| {
        let mut of = written("gold", &self::requests(requests));
        let version = of.version.take().expect("a version");
        let hash = version.hash.replacen("1:", &format!("{form}:"), 1).into();
        Observed { version: Some(Version { hash, ..Version::clone(&version) }.into()), ..of }
    };
    trail.take(&Report::Start(vec![of(1, 1)]));
    assert_eq!(trail.take(&Report::Start(vec![of(2, 1)])), 0);
    assert_eq!(trail.change(of(2, 2)), 1);
}

fn start(location: &Location, delay: Duration) -> Audit {
    let options = AuditOptions {
        location: location.clone(),
        keep_days: None,
        scope: "the cluster".into(),
        may_be_absent: &[],
        delay,
    };
    Audit::start(options).expect("a thread")
}

fn lines(audit: &Audit) -> Vec<Json> {
    let mut text = Vec::new();
    let Ok(answer) = audit.answer("after=0&limit=1000") else { return Vec::new() };
    answer.write(&mut text).expect("written");
    let text = String::from_utf8(text).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[track_caller]
fn wait_for(what: &str, mut is_met: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is_met() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Two control planes with the same objects write one chain.
fn processes_share_a_database(location: &Location) {
    let both = [start(location, Duration::ZERO), start(location, Duration::ZERO)];
    for audit in &both {
        audit.record(Report::Start(vec![]));
    }
    for number in 1..=50 {
        for audit in &both {
            audit.record(Report::Change(stored("gold", "u", number, &requests(number as u32))));
        }
    }
    wait_for("both have written", || both.iter().all(|audit| audit.finish(WAIT) == 0));
    let entries = lines(&both[0]);
    let changes: Vec<_> = entries.iter().filter_map(|of| of["resource_version"].as_i64()).collect();
    // A control plane that is behind may skip versions, but writes none twice.
    assert!(changes.is_sorted_by(|one, next| one < next) && changes.last() == Some(&50), "{changes:?}");
    let mut chain = Chain::default();
    let answer = both[1].answer("after=0&limit=1000").expect("an answer");
    let mut text = Vec::new();
    answer.write(&mut text).expect("written");
    for line in String::from_utf8(text).expect("UTF-8").lines() {
        chain.take(line).expect("a chain");
    }
}

fn changes_wait_while_the_database_is_away(server: &mut Server) {
    let audit = start(&server.database("outage"), Duration::ZERO);
    audit.record(Report::Start(vec![]));
    wait_for("the start is written", || audit.status().written == 1);
    server.stop();
    for number in 1..=3 {
        audit.record(Report::Change(stored("gold", "u", number, &requests(number as u32))));
    }
    wait_for("failures", || audit.status().failures > 0);
    assert!(audit.answer("").is_err());
    server.begin();
    wait_for("the changes are written", || audit.status().written == 4);
    assert_eq!((audit.status().dropped, audit.status().waiting), (0, 0));
}

#[test]
fn waiting_reports_are_bounded_and_the_newest_stay() {
    let audit = start(&Location::Sqlite("/does/not/exist/audit.db".into()), Duration::ZERO);
    let long = "x".repeat(1 << 20);
    for number in 0..40 {
        audit.record(Report::Change(written(&number.to_string(), &json!({"spec": long}))));
    }
    let status = audit.status();
    assert!(status.dropped > 20 && status.waiting < 20 && status.waiting > 5, "{status:?}");
    let queue = audit.shared.queue();
    let last = queue.waiting.back().map(|waiting| match &waiting.report {
        Report::Change(observed) => observed.subject.name.to_string(),
        _ => String::new(),
    });
    assert_eq!(last.as_deref(), Some("39"));
    assert!(queue.bytes <= super::WAITING_BYTES + (2 << 20));
}

#[test]
fn changes_wait_for_requests_unless_the_process_ends() {
    let audit = start(&Location::Memory, Duration::from_secs(3600));
    audit.record(Report::Change(stored("gold", "u", 1, &requests(1))));
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(audit.status().written, 0);
    assert_eq!(audit.finish(Duration::from_secs(20)), 0);
    assert_eq!(audit.status().written, 1);
    assert!(now() > NOW - 40 * 365 * DAY);
}
