//! The EndpointSlice of the demo, rewritten at each change of the endpoints.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// A file with an EndpointSlice. Only the endpoints of the file change.
#[derive(Debug)]
pub(crate) struct Slice {
    path: PathBuf,
    before: String,
    after: String,
    port: u16,
}

impl Slice {
    /// Finds the only EndpointSlice in the files of a folder.
    pub(crate) fn find(directory: &Path) -> anyhow::Result<Self> {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            if let Some(kind) = text.find("kind: EndpointSlice") {
                return Self::parse(path.clone(), &text, kind)
                    .with_context(|| format!("the EndpointSlice in {}", path.display()));
            }
        }
        bail!("there is no EndpointSlice in {}", directory.display());
    }

    /// The port of the endpoints.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Writes the slice with these endpoints.
    pub(crate) fn write(&self, ready: &[IpAddr]) -> anyhow::Result<()> {
        let entry = |ip: &IpAddr| {
            format!(
                "  - addresses: [{ip}]\n    conditions: {{ready: true, serving: true, terminating: false}}\n"
            )
        };
        let endpoints: String = ready.iter().map(entry).collect();
        let endpoints =
            if ready.is_empty() { "endpoints: []\n".to_owned() } else { format!("endpoints:\n{endpoints}") };
        crate::replace(&self.path, &format!("{}{endpoints}{}", self.before, self.after))
    }

    /// Parses the slice. `kind` is the position of the EndpointSlice in the text.
    fn parse(path: PathBuf, text: &str, kind: usize) -> anyhow::Result<Self> {
        let start = text[..kind].rfind("\n---").map_or(0, |at| at + 1);
        let end = text[kind..].find("\n---").map_or(text.len(), |at| kind + at + 1);
        let key = text[start..end].find("\nendpoints:").context("endpoints: is missing")? + start + 1;
        // The list ends at the next line that is neither indented nor part of a list.
        let rest = text[key..end].split_inclusive('\n').skip(1);
        let length: usize = rest.take_while(|line| line.starts_with([' ', '-'])).map(str::len).sum();
        let list = text[key..].find('\n').map_or(text.len(), |at| key + at + 1);
        let port = text[start..end].split_once("port:").context("ports: names no port")?.1.trim_start();
        let digits = port.find(|c: char| !c.is_ascii_digit()).map_or(port, |at| &port[..at]);
        let port = digits.parse().with_context(|| format!("port: {digits}"))?;
        Ok(Self { path, before: text[..key].to_owned(), after: text[list + length..].to_owned(), port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "kind: Service\nspec: {}\n---\nkind: EndpointSlice\nendpoints:\n  - addresses: [10.0.0.1]\n    \
                        zone: a\nports:\n  - name: http\n    port: 9000\n---\nkind: Ingress\n";

    #[test]
    fn edited_slice_differs_only_in_its_endpoints() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("all.yaml");
        fs::write(&path, TEXT).unwrap();
        let slice = Slice::find(directory.path()).unwrap();
        assert_eq!(slice.port(), 9000);
        slice.write(&[[127, 0, 1, 9].into()]).unwrap();
        let expected = TEXT.replace(
            "  - addresses: [10.0.0.1]\n    zone: a\n",
            "  - addresses: [127.0.1.9]\n    conditions: {ready: true, serving: true, terminating: false}\n",
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
    }
}
