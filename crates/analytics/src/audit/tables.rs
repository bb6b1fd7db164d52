//! The tables of the audit trail.
//!
//! `sluicegate_audit` has the entries, which are never changed. `sluicegate_audit_head` has the number and the hash of the last entry;
//! its lock gives the entries of several processes their order. `sluicegate_audit_objects` has the last recorded version of each
//! object, or the end of the object. `sluicegate_audit_requests` has the requests of the last minutes to write objects.
//!
//! The tables have a version of their own, because a process without the audit trail does not need them.

use sluicegate_model::audit::Subject;

use crate::sql::{Isolation, Sql, SqlError, Value};

/// The version of the tables that this program writes.
const VERSION: i64 = 1;

/// The last entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// The number of the last entry; 0 without an entry.
    pub(crate) number: i64,
    /// The hash of the last entry; empty without an entry.
    pub(crate) hash: String,
}

/// The last recorded version of an object.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) uid: String,
    /// The resource version; 0 for manifests.
    pub(super) number: i64,
    /// The hash of the version; empty if the object is gone.
    pub(super) hash: String,
    /// The time of the record, in milliseconds since 1970.
    pub(super) time: i64,
}

/// Creates the tables.
pub(super) fn migrate(sql: &mut dyn Sql) -> Result<(), SqlError> {
    sql.run("CREATE TABLE IF NOT EXISTS sluicegate_audit_schema (version BIGINT NOT NULL)")?;
    let version = |sql: &mut dyn Sql| {
        let rows =
            sql.fetch("SELECT version FROM sluicegate_audit_schema ORDER BY version DESC LIMIT 1", &[])?;
        rows.first().and_then(|row| row.first()).map(Value::int).transpose()
    };
    if version(sql)? == Some(VERSION) {
        return Ok(());
    }
    sql.transaction(Isolation::Committed, |sql| {
        if !sql.is_alone()? {
            return Err(SqlError::Setup("another process creates the tables".to_owned()));
        }
        match version(sql)? {
            None => create(sql)?,
            Some(VERSION) => return Ok(()),
            Some(other) => {
                return Err(SqlError::Setup(format!(
                    "its tables of the audit trail have version {other}, and this program knows version {VERSION}; update the program, \
                     or name another database with --analytics-database"
                )));
            }
        }
        sql.execute("INSERT INTO sluicegate_audit_schema (version) VALUES ($1)", &[Value::Int(VERSION)])?;
        Ok(())
    })
}

fn create(sql: &mut dyn Sql) -> Result<(), SqlError> {
    sql.run(
        "CREATE TABLE sluicegate_audit (number BIGINT PRIMARY KEY, time BIGINT NOT NULL, operation TEXT NOT NULL,
             kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, actor TEXT NOT NULL, uid TEXT NOT NULL,
             version BIGINT NOT NULL, entry TEXT NOT NULL, hash TEXT NOT NULL);
         CREATE INDEX sluicegate_audit_time ON sluicegate_audit (time);
         CREATE INDEX sluicegate_audit_object ON sluicegate_audit (kind, namespace, name);
         CREATE INDEX sluicegate_audit_version ON sluicegate_audit (uid, version);
         CREATE TABLE sluicegate_audit_head (id BIGINT PRIMARY KEY, number BIGINT NOT NULL, hash TEXT NOT NULL);
         INSERT INTO sluicegate_audit_head (id, number, hash) VALUES (1, 0, '');
         CREATE TABLE sluicegate_audit_objects (scope TEXT NOT NULL, kind TEXT NOT NULL, namespace TEXT NOT NULL,
             name TEXT NOT NULL, uid TEXT NOT NULL, version BIGINT NOT NULL, hash TEXT NOT NULL, content TEXT NOT NULL,
             time BIGINT NOT NULL, PRIMARY KEY (scope, kind, namespace, name));
         CREATE TABLE sluicegate_audit_requests (kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
             hash TEXT NOT NULL, actor TEXT NOT NULL, time BIGINT NOT NULL);
         CREATE INDEX sluicegate_audit_requests_object ON sluicegate_audit_requests (kind, namespace, name)",
    )
}

/// Takes the lock of the head until the end of the transaction.
pub(super) fn lock_head(sql: &mut dyn Sql) -> Result<Head, SqlError> {
    sql.run("UPDATE sluicegate_audit_head SET number = number")?;
    head(sql)
}

/// The head.
pub(super) fn head(sql: &mut dyn Sql) -> Result<Head, SqlError> {
    let rows = sql.fetch("SELECT number, hash FROM sluicegate_audit_head LIMIT 1", &[])?;
    match rows.first().map(Vec::as_slice) {
        Some([number, hash]) => Ok(Head { number: number.int()?, hash: hash.text()?.to_owned() }),
        _ => Err(SqlError::Setup(
            "the table sluicegate_audit_head has no row; restore the database".to_owned(),
        )),
    }
}

/// The values of the key of an object.
pub(super) fn key(scope: &str, Subject { kind, namespace, name }: &Subject) -> Vec<Value> {
    vec![scope.into(), (**kind).into(), (**namespace).into(), (**name).into()]
}
