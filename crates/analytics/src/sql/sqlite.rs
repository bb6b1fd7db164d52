//! SQLite, in a file or in memory.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ToSql, params_from_iter};

use super::{Dialect, Isolation, Sql, SqlError, Value, insertion};

/// How long a statement waits for another process.
const BUSY: Duration = Duration::from_secs(10);

/// A connection to a database of SQLite.
pub(crate) struct Sqlite {
    connection: Connection,
    is_in_memory: bool,
}

impl Sqlite {
    /// Opens or creates a file; without a path, a database in memory.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, SqlError> {
        let connection = match path {
            Some(path) => Connection::open(path)?,
            None => Connection::open_in_memory()?,
        };
        connection.busy_timeout(BUSY)?;
        // A crash of the machine may lose the last batches, and never damages the file.
        connection.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA temp_store = MEMORY;
             PRAGMA auto_vacuum = INCREMENTAL; PRAGMA cache_size = -8192; PRAGMA journal_size_limit = 67108864;",
        )?;
        Ok(Self { connection, is_in_memory: path.is_none() })
    }
}

impl Sql for Sqlite {
    fn begin(&mut self, _: Isolation) -> Result<(), SqlError> {
        // Writers wait for each other at the begin. A transaction that became a writer later could fail.
        self.run("BEGIN IMMEDIATE")
    }

    fn run(&mut self, sql: &str) -> Result<(), SqlError> {
        Ok(self.connection.execute_batch(sql)?)
    }

    fn execute(&mut self, sql: &str, parameters: &[Value]) -> Result<u64, SqlError> {
        Ok(self.connection.execute(sql, params_from_iter(parameters))? as u64)
    }

    fn fetch(&mut self, sql: &str, parameters: &[Value]) -> Result<Vec<Vec<Value>>, SqlError> {
        let mut statement = self.connection.prepare(sql)?;
        let columns = statement.column_count();
        let mut rows = statement.query(params_from_iter(parameters))?;
        let mut fetched = Vec::new();
        while let Some(row) = rows.next()? {
            let values = (0..columns).map(|column| {
                Ok(match row.get_ref(column)? {
                    ValueRef::Integer(int) => Value::Int(int),
                    ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
                    ValueRef::Blob(bytes) => Value::Blob(bytes.to_vec()),
                    ValueRef::Null | ValueRef::Real(_) => return Err(SqlError::Type),
                })
            });
            fetched.push(values.collect::<Result<_, _>>()?);
        }
        Ok(fetched)
    }

    fn insert(&mut self, table: &str, columns: &[&str], rows: &[Vec<Value>]) -> Result<(), SqlError> {
        let mut statement = self.connection.prepare(&insertion(table, columns, 1))?;
        for row in rows {
            statement.execute(params_from_iter(row))?;
        }
        Ok(())
    }

    fn is_alone(&mut self) -> Result<bool, SqlError> {
        // The transaction is the only writer.
        Ok(true)
    }

    fn dialect(&self) -> Dialect {
        Dialect { id: "INTEGER PRIMARY KEY", bytes: "BLOB" }
    }

    fn set_deadline(&mut self, deadline: Option<Instant>) -> Result<(), SqlError> {
        const STEPS: i32 = 10_000;
        let is_late = deadline.map(|deadline| move || Instant::now() > deadline);
        Ok(self.connection.progress_handler(STEPS, is_late)?)
    }

    fn memory(&mut self) -> Result<Option<u64>, SqlError> {
        if !self.is_in_memory {
            return Ok(None);
        }
        let pragma = |name| self.connection.query_row(name, [], |row| row.get::<_, i64>(0));
        let pages = pragma("PRAGMA page_count")? - pragma("PRAGMA freelist_count")?;
        Ok(u64::try_from(pages * pragma("PRAGMA page_size")?).ok())
    }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Int(int) => ValueRef::Integer(*int),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}
