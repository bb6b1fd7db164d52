//! The version of the running program.

use std::fmt;

/// The version of a program, and the commit of its sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Build {
    /// The version, such as `0.1.0`.
    pub version: &'static str,
    /// The first digits of the commit, such as `3f141bea`. The scripts of a release set the commit; other builds have none.
    pub commit: Option<&'static str>,
}

impl Build {
    /// A build of this version without a commit.
    pub const PLAIN: Self = Self { version: env!("CARGO_PKG_VERSION"), commit: None };
}

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.commit {
            Some(commit) => write!(f, "{} ({commit})", self.version),
            None => f.write_str(self.version),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_names_its_commit_if_known() {
        assert_eq!(Build { version: "0.1.0", commit: Some("3f141bea") }.to_string(), "0.1.0 (3f141bea)");
        assert_eq!(Build::PLAIN.to_string(), env!("CARGO_PKG_VERSION"));
    }
}
