//! For scripts: free ports, and a certificate with its CA certificate and its Secret.
//!
//! `ports N` prints N ports; `ports --certificate NAME DIR` writes `ca.pem` and `secret.yaml`.

#![allow(clippy::print_stdout, reason = "the result of this program is what it prints")]

use std::net::TcpListener;
use std::path::PathBuf;

use clap::Parser;
use sluicegate_testkit::tls::Authority;

/// Free ports, or a certificate.
#[derive(Debug, Parser)]
struct Arguments {
    /// The number of ports to print.
    #[arg(required_unless_present = "certificate")]
    count: Option<usize>,
    /// Write a certificate for this name to the directory, and print no ports.
    #[arg(long, num_args = 2, value_names = ["NAME", "DIR"])]
    certificate: Option<Vec<PathBuf>>,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if let Some([name, directory]) = arguments.certificate.as_deref() {
        let authority = Authority::new();
        let name = name.to_string_lossy();
        std::fs::write(directory.join("ca.pem"), authority.pem())?;
        std::fs::write(directory.join("secret.yaml"), authority.issue(&[&name]).secret(&name))?;
        return Ok(());
    }
    // All listeners stay open until all ports are known.
    let listeners: Result<Vec<_>, _> =
        (0..arguments.count.unwrap_or(0)).map(|_| TcpListener::bind("127.0.0.1:0")).collect();
    let ports: Result<Vec<_>, _> =
        listeners?.iter().map(|listener| listener.local_addr().map(|addr| addr.port().to_string())).collect();
    println!("{}", ports?.join(" "));
    Ok(())
}
