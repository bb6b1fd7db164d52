//! A connection to a database, for SQL that SQLite and PostgreSQL both understand.
//!
//! A statement numbers its parameters `$1`, `$2` in the order in which they occur.

pub(crate) mod postgres;
pub(crate) mod sqlite;

use std::fmt;
use std::time::Instant;

/// A value of a column or parameter.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Int(i64),
    Text(String),
    Blob(Vec<u8>),
}

/// The reason why a statement failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SqlError {
    #[error("{0}")]
    Sqlite(#[from] rusqlite::Error),
    #[error("{}", in_words(.0))]
    Postgres(#[from] tokio_postgres::Error),
    #[error("{0}")]
    Setup(String),
    #[error("the database has a value of an unexpected type")]
    Type,
}

/// The library's own text leaves out the cause.
fn in_words(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(error) => error.message().to_owned(),
        None => {
            let mut text = error.to_string();
            let mut cause = std::error::Error::source(error);
            while let Some(error) = cause {
                let more = error.to_string();
                if !text.contains(&more) {
                    text = format!("{text}: {more}");
                }
                cause = error.source();
            }
            text
        }
    }
}

/// The isolation of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isolation {
    /// Each statement sees what is committed.
    Committed,
    /// All statements see the same state.
    Snapshot,
}

/// A connection to a database.
pub(crate) trait Sql: Send {
    /// Begins a transaction.
    fn begin(&mut self, isolation: Isolation) -> Result<(), SqlError>;

    /// Runs statements without parameters and results.
    fn run(&mut self, sql: &str) -> Result<(), SqlError>;

    /// Runs a statement. Returns the number of changed rows.
    fn execute(&mut self, sql: &str, parameters: &[Value]) -> Result<u64, SqlError>;

    /// The rows of a query, which must limit their number.
    fn fetch(&mut self, sql: &str, parameters: &[Value]) -> Result<Vec<Vec<Value>>, SqlError>;

    /// Inserts rows into the columns of a table.
    fn insert(&mut self, table: &str, columns: &[&str], rows: &[Vec<Value>]) -> Result<(), SqlError>;

    /// Whether this connection does the background work, until the end of the transaction.
    fn is_alone(&mut self) -> Result<bool, SqlError>;

    /// The words of the dialect for a type.
    fn dialect(&self) -> Dialect;

    /// Ends statements at this time.
    fn set_deadline(&mut self, deadline: Option<Instant>) -> Result<(), SqlError>;

    /// The size of the database in bytes, if it is in memory.
    fn memory(&mut self) -> Result<Option<u64>, SqlError>;
}

/// The words in which the databases differ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dialect {
    /// The type of a primary key that the database numbers.
    pub(crate) id: &'static str,
    /// The type of bytes.
    pub(crate) bytes: &'static str,
}

impl dyn Sql + '_ {
    /// Runs `work` in a transaction.
    pub(crate) fn transaction<T, E: From<SqlError>>(
        &mut self,
        isolation: Isolation,
        work: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        self.begin(isolation)?;
        match work(self) {
            Ok(done) => {
                self.run("COMMIT")?;
                Ok(done)
            }
            Err(error) => {
                // A lost connection has no transaction any more.
                let _ = self.run("ROLLBACK");
                Err(error)
            }
        }
    }
}

impl Value {
    pub(crate) fn int(&self) -> Result<i64, SqlError> {
        match self {
            Self::Int(int) => Ok(*int),
            _ => Err(SqlError::Type),
        }
    }

    /// A count or a size.
    pub(crate) fn count(&self) -> Result<u64, SqlError> {
        u64::try_from(self.int()?).map_err(|_| SqlError::Type)
    }

    pub(crate) fn text(&self) -> Result<&str, SqlError> {
        match self {
            Self::Text(text) => Ok(text),
            _ => Err(SqlError::Type),
        }
    }

    pub(crate) fn bytes(&self) -> Result<&[u8], SqlError> {
        match self {
            Self::Blob(bytes) => Ok(bytes),
            _ => Err(SqlError::Type),
        }
    }
}

impl From<u64> for Value {
    /// A number beyond the range of the database counts as its largest number.
    fn from(number: u64) -> Self {
        Self::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// `INSERT INTO table (columns) VALUES ($1, ...), ...`
fn insertion(table: &str, columns: &[&str], rows: usize) -> String {
    use fmt::Write as _;
    let mut sql = format!("INSERT INTO {table} ({}) VALUES ", columns.join(", "));
    for row in 0..rows {
        for column in 0..columns.len() {
            let before = match (row, column) {
                (0, 0) => "(",
                (_, 0) => "), (",
                _ => ", ",
            };
            // Writing to a String does not fail.
            let _ = write!(sql, "{before}${}", row * columns.len() + column + 1);
        }
    }
    sql.push(')');
    sql
}
