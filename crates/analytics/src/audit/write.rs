//! From the reports of sources to entries. All work of a call happens in the transaction of the caller.

use std::collections::HashMap;

use serde_json::{Map, Value as Json, json};
use sluicegate_model::audit::{Actor, Observed, Report, Requested, Subject, Version};

use super::difference::difference;
use super::entry::{PRUNED, TRAIL, actor, hash, rfc3339};
use super::meaning::meaning;
use super::tables::{Head, Known, key, lock_head};
use crate::sql::{Sql, SqlError, Value};

/// How long a request to write an object is kept, in milliseconds: until the version arrives by the watch. How long after a record an
/// older version counts as the late report of another control plane; later, it is from a restored backup of the cluster.
const LATE: i64 = 600_000;
/// Records of other processes in this time before the start of a process may be about objects that the process has not seen yet, in
/// milliseconds.
const STARTING: i64 = 60_000;
/// An object is found, not created, if it is this old when the gateway begins to use it, in milliseconds.
const FOUND: i64 = 60_000;
/// The longest content that is kept for the comparison with the next version, in bytes.
const CONTENT_MAX: usize = 256 << 10;
/// A day in milliseconds.
const DAY: i64 = 86_400_000;

/// The rules of one process.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    /// The objects of different scopes are different objects.
    pub(super) scope: String,
    /// The kinds of which an absent object may still exist.
    pub(super) may_be_absent: &'static [&'static str],
}

/// The work in one transaction.
pub(super) struct Writer<'s> {
    sql: &'s mut dyn Sql,
    rules: &'s Rules,
    head: Head,
    now: i64,
    /// The number of new entries.
    pub(super) written: u64,
}

/// A new entry.
#[derive(Default)]
struct Entry<'e> {
    time: i64,
    operation: &'static str,
    kind: &'e str,
    namespace: &'e str,
    name: &'e str,
    actor: Actor,
    uid: &'e str,
    version: i64,
    /// The other fields.
    more: Map<String, Json>,
}

impl<'s> Writer<'s> {
    /// Takes the lock of the trail until the end of the transaction.
    pub(super) fn new(sql: &'s mut dyn Sql, rules: &'s Rules, now: i64) -> Result<Self, SqlError> {
        let head = lock_head(sql)?;
        Ok(Self { sql, rules, head, now, written: 0 })
    }

    pub(super) fn take(&mut self, report: &Report) -> Result<(), SqlError> {
        match report {
            Report::Start(objects) => self.start(objects),
            Report::Change(observed) => {
                let known = self.known(&observed.subject)?;
                self.change(observed, known.as_ref(), FOUND)
            }
            Report::Request(requested) => self.request(requested),
        }
    }

    fn request(&mut self, requested: &Requested) -> Result<(), SqlError> {
        let Requested { subject, hash, user, groups, time } = requested;
        let user = Actor::User { name: user.clone(), groups: groups.clone() };
        let mut values = key("", subject).split_off(1);
        values.extend([(**hash).into(), actor(&user).to_string().as_str().into(), Value::Int(*time)]);
        let columns = ["kind", "namespace", "name", "hash", "actor", "time"];
        self.sql.insert("sluicegate_audit_requests", &columns, &[values])
    }

    /// The user who requested a version, or a deletion if the hash is empty, before the time at which the source applied it.
    fn requester(&mut self, subject: &Subject, hash: &str, time: i64) -> Result<Option<Actor>, SqlError> {
        const NEWEST: &str = "SELECT actor FROM sluicegate_audit_requests \
            WHERE kind = $1 AND namespace = $2 AND name = $3 AND hash = $4 AND time > $5 ORDER BY time DESC LIMIT 1";
        let mut values = key("", subject).split_off(1);
        values.extend([hash.into(), Value::Int(time - LATE)]);
        let rows = self.sql.fetch(NEWEST, &values)?;
        let Some(text) = rows.first().and_then(|row| row.first()) else { return Ok(None) };
        let user: Json = serde_json::from_str(text.text()?).unwrap_or_default();
        let groups = user["groups"].as_array().into_iter().flatten().filter_map(Json::as_str);
        let name = user["name"].as_str().unwrap_or_default().into();
        Ok(Some(Actor::User { name, groups: groups.map(Into::into).collect() }))
    }

    /// Compares all objects at the start of a process with the last recorded versions.
    fn start(&mut self, objects: &[Observed]) -> Result<(), SqlError> {
        const ALL: &str = "SELECT kind, namespace, name, uid, version, hash, time FROM sluicegate_audit_objects WHERE scope = $1";
        let rows = self.sql.fetch(ALL, &[self.rules.scope.as_str().into()])?;
        let mut known = HashMap::with_capacity(rows.len());
        for row in &rows {
            let [kind, namespace, name, of @ ..] = &row[..] else { return Err(SqlError::Type) };
            let of_object = (kind.text()?, namespace.text()?, name.text()?);
            known.insert(of_object, Known::read(of)?);
        }
        if known.is_empty() {
            return self.begin(objects);
        }
        // Without a report, there is no entry: an object that is older has existed, but the gateway did not use it.
        let newest = known.values().map(|known| known.time).max().unwrap_or_default();
        let found = (self.now - newest).max(FOUND);
        let last_seen = objects.iter().filter_map(|of| of.version.as_ref()?.number).max();
        for observed in objects {
            let Subject { kind, namespace, name } = &observed.subject;
            let known = known.remove(&(&**kind, &**namespace, &**name));
            self.change(observed, known.as_ref(), found)?;
        }
        let mut gone: Vec<_> = known.into_iter().filter(|(_, known)| !known.is_gone()).collect();
        gone.sort_unstable_by_key(|(object, _)| *object);
        for ((kind, namespace, name), known) in gone {
            // A record of another process about an object that is newer than the objects of this process.
            let is_newer =
                last_seen.is_some_and(|seen| known.number > seen) && self.now - known.time < STARTING;
            if self.rules.may_be_absent.contains(&kind) || is_newer {
                continue;
            }
            let observed = Observed {
                subject: Subject {
                    kind: kind.to_owned().into(),
                    namespace: namespace.into(),
                    name: name.into(),
                },
                version: None,
                uid: known.uid.as_str().into(),
                time: self.now,
                actor: Actor::Unknown,
                place: None,
                fault: None,
                is_used: true,
            };
            self.change(&observed, Some(&known), FOUND)?;
        }
        Ok(())
    }

    /// Takes the first objects of a scope, whose writers are not known.
    fn begin(&mut self, objects: &[Observed]) -> Result<(), SqlError> {
        let columns = ["scope", "kind", "namespace", "name", "uid", "version", "hash", "content", "time"];
        let rows: Vec<_> =
            objects.iter().filter_map(|of| Some(self.row(&of.subject, of.version.as_ref()?))).collect();
        let objects = if rows.len() == 1 { "object" } else { "objects" };
        let summary = format!("the audit trail begins with {} {objects} ({})", rows.len(), self.rules.scope);
        self.sql.insert("sluicegate_audit_objects", &columns, &rows)?;
        let more = [("summary".to_owned(), summary.into())].into_iter().collect();
        self.add(Entry { time: self.now, operation: "started", kind: TRAIL, more, ..Entry::default() })
    }

    /// Takes a version, or the end of an object, after the last recorded version.
    fn change(&mut self, observed: &Observed, known: Option<&Known>, found: i64) -> Result<(), SqlError> {
        let Observed { subject, version, uid, .. } = observed;
        let present = known.filter(|known| !known.is_gone());
        let Some(version) = version else {
            // Another object with the name may have been created meanwhile.
            let Some(of) =
                present.filter(|known| uid.is_empty() || known.uid.is_empty() || *known.uid == **uid)
            else {
                return Ok(());
            };
            return self.delete(observed, of);
        };
        let number = version.number.unwrap_or_default();
        if let Some(known) = known
            && !uid.is_empty()
            && *known.uid == **uid
            && (known.is_gone()
                || number == known.number
                || number < known.number && self.now - known.time < LATE)
        {
            return if known.is_gone() || known.has_form_of(version) {
                Ok(())
            } else {
                self.keep(subject, version)
            };
        }
        if number > 0 && self.has_entry(uid, number)? {
            return Ok(());
        }
        match present {
            // The last process recorded other fields.
            Some(of) if !of.has_form_of(version) => self.keep(subject, version),
            Some(of) if *of.hash == *version.hash => match observed.is_used && *of.uid != **uid {
                true => self.keep(subject, version),
                false => Ok(()),
            },
            Some(of) if !uid.is_empty() && !of.uid.is_empty() && *of.uid != **uid => {
                self.delete(&Observed { version: None, actor: Actor::Unknown, ..observed.clone() }, of)?;
                self.create(observed, version, found)
            }
            Some(_) => {
                let before = self.content(subject)?;
                self.write("changed", observed, before.as_ref(), Some(version))?;
                if observed.is_used { self.keep(subject, version) } else { self.forget(subject) }
            }
            None if observed.is_used => self.create(observed, version, found),
            None => Ok(()),
        }
    }

    fn create(&mut self, observed: &Observed, version: &Version, found: i64) -> Result<(), SqlError> {
        let is_old = version.created.is_some_and(|created| created < observed.time - found);
        self.write(if is_old { "found" } else { "created" }, observed, None, Some(version))?;
        self.keep(&observed.subject, version)
    }

    fn delete(&mut self, observed: &Observed, known: &Known) -> Result<(), SqlError> {
        const GONE: &str = "UPDATE sluicegate_audit_objects SET hash = '', content = '', time = $1 \
                            WHERE scope = $2 AND kind = $3 AND namespace = $4 AND name = $5";
        let before = self.content(&observed.subject)?;
        self.write(
            "deleted",
            &Observed { uid: known.uid.as_str().into(), ..observed.clone() },
            before.as_ref(),
            None,
        )?;
        let mut values = vec![Value::Int(self.now)];
        values.extend(key(&self.rules.scope, &observed.subject));
        self.sql.execute(GONE, &values).map(drop)
    }

    /// Writes the entry about a change.
    fn write(
        &mut self,
        operation: &'static str,
        observed: &Observed,
        old: Option<&Map<String, Json>>,
        new: Option<&Version>,
    ) -> Result<(), SqlError> {
        let Observed { subject, uid, time, place, fault, .. } = observed;
        let Subject { kind, namespace, name } = subject;
        // A manifest has no requests.
        let requester = match place {
            None => self.requester(subject, new.map_or("", |version| &version.hash), *time)?,
            Some(_) => None,
        };
        let mut more = Map::new();
        let empty = Map::new();
        let is_comparable = operation != "changed" || old.is_some();
        if is_comparable {
            let new =
                new.and_then(|version| serde_json::from_str::<Map<String, Json>>(&version.content).ok());
            let new = new.as_ref();
            let of = difference(old.unwrap_or(&empty), new.unwrap_or(&empty));
            if of.more > 0 {
                more.insert("more_changes".into(), of.more.into());
            }
            more.insert("changes".into(), of.changes.into());
            let summary = meaning(kind, old, new);
            if !summary.is_empty() {
                more.insert("summary".into(), summary.into());
            }
        } else {
            more.insert("summary".into(), "the object is too large for a comparison".into());
        }
        if let Some(generation) = new.and_then(|version| version.generation) {
            more.insert("generation".into(), generation.into());
        }
        if let Some(place) = place {
            let line = Some(place.line).filter(|line| *line > 0);
            let mut manifest = json!({"file": place.file});
            if let Some(line) = line {
                manifest["line"] = line.into();
            }
            more.insert("manifest".into(), manifest);
        }
        if new.is_some() {
            more.insert("applied".into(), fault.is_none().into());
        }
        if let Some(fault) = fault {
            more.insert("fault".into(), (**fault).into());
        }
        self.add(Entry {
            time: *time,
            operation,
            kind,
            namespace,
            name,
            actor: requester.unwrap_or_else(|| observed.actor.clone()),
            uid,
            version: new.and_then(|version| version.number).unwrap_or_default(),
            more,
        })
    }

    /// Appends an entry.
    fn add(&mut self, entry: Entry<'_>) -> Result<(), SqlError> {
        const COLUMNS: [&str; 11] = [
            "number",
            "time",
            "operation",
            "kind",
            "namespace",
            "name",
            "actor",
            "uid",
            "version",
            "entry",
            "hash",
        ];
        let Entry { time, operation, kind, namespace, name, actor: of, uid, version, mut more } = entry;
        let number = self.head.number + 1;
        for (field, value) in [
            ("number", number.into()),
            ("time", rfc3339(time).into()),
            ("operation", operation.into()),
            ("kind", kind.into()),
            ("previous", self.head.hash.as_str().into()),
        ] {
            more.insert(field.into(), value);
        }
        if kind != TRAIL {
            more.insert("actor".into(), actor(&of));
        }
        for (field, value) in [("namespace", namespace), ("name", name), ("uid", uid)] {
            if !value.is_empty() {
                more.insert(field.into(), value.into());
            }
        }
        if version > 0 {
            more.insert("resource_version".into(), version.into());
        }
        let line = Json::Object(more).to_string();
        let hash = hash(&line);
        let actor_name = match &of {
            Actor::User { name, .. } | Actor::Manager(name) | Actor::Owner(name) => name,
            Actor::Unknown => "",
        };
        let values = vec![
            Value::Int(number),
            Value::Int(time),
            operation.into(),
            kind.into(),
            namespace.into(),
            name.into(),
            actor_name.into(),
            uid.into(),
            Value::Int(version),
            line.as_str().into(),
            hash.as_str().into(),
        ];
        self.sql.insert("sluicegate_audit", &COLUMNS, &[values])?;
        self.sql.execute(
            "UPDATE sluicegate_audit_head SET number = $1, hash = $2",
            &[Value::Int(number), hash.as_str().into()],
        )?;
        self.head = Head { number, hash };
        self.written += 1;
        Ok(())
    }

    fn known(&mut self, subject: &Subject) -> Result<Option<Known>, SqlError> {
        const ONE: &str = "SELECT uid, version, hash, time FROM sluicegate_audit_objects \
                           WHERE scope = $1 AND kind = $2 AND namespace = $3 AND name = $4";
        let rows = self.sql.fetch(ONE, &key(&self.rules.scope, subject))?;
        rows.first().map(|row| Known::read(row)).transpose()
    }

    /// The content of the last recorded version; `None` if it was too large.
    fn content(&mut self, subject: &Subject) -> Result<Option<Map<String, Json>>, SqlError> {
        const CONTENT: &str = "SELECT content FROM sluicegate_audit_objects \
                               WHERE scope = $1 AND kind = $2 AND namespace = $3 AND name = $4";
        let rows = self.sql.fetch(CONTENT, &key(&self.rules.scope, subject))?;
        let text = rows.first().and_then(|row| row.first()).map(Value::text).transpose()?;
        Ok(text.and_then(|text| serde_json::from_str(text).ok()))
    }

    /// Keeps a version for the comparison with the next version.
    fn keep(&mut self, subject: &Subject, version: &Version) -> Result<(), SqlError> {
        const KEEP: &str = "INSERT INTO sluicegate_audit_objects (scope, kind, namespace, name, uid, version, hash, content, time) \
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (scope, kind, namespace, name) DO UPDATE SET \
            uid = excluded.uid, version = excluded.version, hash = excluded.hash, content = excluded.content, time = excluded.time";
        let row = self.row(subject, version);
        self.sql.execute(KEEP, &row).map(drop)
    }

    /// Drops the version of an object that the gateway does not use any more.
    fn forget(&mut self, subject: &Subject) -> Result<(), SqlError> {
        const DROP: &str = "DELETE FROM sluicegate_audit_objects \
                            WHERE scope = $1 AND kind = $2 AND namespace = $3 AND name = $4";
        self.sql.execute(DROP, &key(&self.rules.scope, subject)).map(drop)
    }

    fn row(&self, subject: &Subject, version: &Version) -> Vec<Value> {
        let content = if version.content.len() > CONTENT_MAX { "" } else { &*version.content };
        let mut row = key(&self.rules.scope, subject);
        row.extend([
            (*version.uid).into(),
            Value::Int(version.number.unwrap_or_default()),
            (*version.hash).into(),
            content.into(),
            Value::Int(self.now),
        ]);
        row
    }

    fn has_entry(&mut self, uid: &str, number: i64) -> Result<bool, SqlError> {
        let sql = "SELECT number FROM sluicegate_audit WHERE uid = $1 AND version = $2 LIMIT 1";
        Ok(!self.sql.fetch(sql, &[uid.into(), Value::Int(number)])?.is_empty())
    }

    /// Removes the oldest entries, if the retention of at least a day of entries has ended, and notes it.
    pub(super) fn prune(&mut self, keep_days: u32) -> Result<(), SqlError> {
        let one = |sql: &mut dyn Sql, text: &str, value: i64| {
            let rows = sql.fetch(text, &[Value::Int(value)])?;
            Ok::<_, SqlError>(rows.into_iter().next().unwrap_or_default())
        };
        let end = self.now - i64::from(keep_days) * DAY;
        let oldest = "SELECT number FROM sluicegate_audit WHERE time < $1 ORDER BY number LIMIT 1";
        let Some(oldest) = one(self.sql, oldest, end - DAY)?.first().map(Value::int).transpose()? else {
            return Ok(());
        };
        let kept = "SELECT number FROM sluicegate_audit WHERE time >= $1 ORDER BY number LIMIT 1";
        let kept = one(self.sql, kept, end)?.first().map(Value::int).transpose()?;
        let through = kept.map_or(self.head.number, |kept| kept - 1);
        // An entry whose time is wrong may be younger than all entries before.
        if through < oldest {
            return Ok(());
        }
        let hash = one(self.sql, "SELECT hash FROM sluicegate_audit WHERE number = $1", through)?;
        let hash = hash.first().ok_or(SqlError::Type)?.text()?.to_owned();
        self.sql.execute("DELETE FROM sluicegate_audit WHERE number <= $1", &[Value::Int(through)])?;
        let summary = format!(
            "entries {oldest} to {through} were removed, because their retention of {keep_days} days ended"
        );
        let mut more = Map::new();
        more.insert("summary".into(), summary.into());
        more.insert("removed".into(), json!({"from": oldest, "through": through, "hash": hash}));
        self.add(Entry { time: self.now, operation: PRUNED, kind: TRAIL, more, ..Entry::default() })
    }

    /// Removes requests and ends of objects that are not needed any more.
    pub(super) fn tidy(&mut self) -> Result<(), SqlError> {
        let end = [Value::Int(self.now - LATE)];
        self.sql.execute("DELETE FROM sluicegate_audit_requests WHERE time < $1", &end)?;
        self.sql.execute("DELETE FROM sluicegate_audit_objects WHERE hash = '' AND time < $1", &end).map(drop)
    }
}

impl Known {
    /// From the columns `uid`, `version`, `hash` and `time`.
    fn read(row: &[Value]) -> Result<Self, SqlError> {
        let [uid, number, hash, time] = row else { return Err(SqlError::Type) };
        let text = |value: &Value| value.text().map(str::to_owned);
        Ok(Self { uid: text(uid)?, number: number.int()?, hash: text(hash)?, time: time.int()? })
    }

    fn is_gone(&self) -> bool {
        self.hash.is_empty()
    }

    /// Whether both hashes are about the same fields. A new program may record more fields.
    fn has_form_of(&self, version: &Version) -> bool {
        let form = |hash: &str| hash.split_once(':').map(|(form, _)| form.to_owned());
        form(&self.hash) == form(&version.hash)
    }
}
