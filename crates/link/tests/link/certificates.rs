//! Each plane accepts only peers with a valid certificate of the other plane.

use sluicegate_link::PlaneTls;
use sluicegate_testkit::tls::{Authority, ExtendedKeyUsagePurpose};
use tokio::time::timeout;

use crate::support::{Certificates, Control, Data, LIMIT, config_change, endpoints_change, save};

type TestResult = anyhow::Result<()>;

/// Waits until the control plane rejects the data plane. Returns the error of the data plane.
async fn refused(control: &Control, data: &mut Data) -> anyhow::Result<String> {
    let telemetry = data.telemetry.wait_for(|telemetry| telemetry.last_error.is_some());
    let error = timeout(LIMIT, telemetry).await??.last_error.clone();
    anyhow::ensure!(control.distributor.telemetry().counts.accepted == 0, "it was accepted");
    anyhow::ensure!(data.serves.borrow().config.is_none(), "it got a configuration");
    Ok(error.unwrap_or_default().to_string())
}

#[tokio::test]
async fn data_plane_certificate_of_another_ca_or_usage_is_rejected() -> TestResult {
    let certificates = Certificates::new()?;
    let control = Control::start(certificates.control.path()).await?;
    control.distributor.publish(&config_change(1, 1));
    let (dir, other) = (tempfile::tempdir()?, Authority::new());
    let stranger = other.issue_for(&["sluicegate-data-plane"], ExtendedKeyUsagePurpose::ClientAuth);
    let names = ["sluicegate-data-plane"];
    let for_servers = certificates.authority.issue_for(&names, ExtendedKeyUsagePurpose::ServerAuth);
    let for_anything = certificates.authority.issue(&names);
    for issued in [stranger, for_servers, for_anything] {
        save(dir.path(), &issued, &certificates.authority)?;
        let mut data = Data::start(control.address, dir.path(), None, "")?;
        refused(&control, &mut data).await?;
    }
    assert!(control.distributor.telemetry().counts.handshakes_failed >= 3);
    Ok(())
}

#[tokio::test]
async fn control_plane_certificate_of_another_ca_name_or_usage_is_rejected() -> TestResult {
    let certificates = Certificates::new()?;
    let (dir, other) = (tempfile::tempdir()?, Authority::new());
    let server = ExtendedKeyUsagePurpose::ServerAuth;
    for issued in [
        other.issue_for(&["sluicegate-control-plane"], server.clone()),
        certificates.authority.issue_for(&["somebody-else"], server),
        certificates.authority.issue_for(&["sluicegate-control-plane"], ExtendedKeyUsagePurpose::ClientAuth),
    ] {
        save(dir.path(), &issued, &certificates.authority)?;
        let control = Control::start(dir.path()).await?;
        control.distributor.publish(&config_change(1, 1));
        let mut data = Data::start(control.address, certificates.proxy.path(), None, "")?;
        let error = refused(&control, &mut data).await?;
        assert!(error.contains("certificate"), "{error}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replaced_certificates_apply_to_new_connections_and_leave_open_connections_unchanged() -> TestResult {
    let certificates = Certificates::new()?;
    let control = Control::start(certificates.control.path()).await?;
    let follows = tokio::spawn(control.tls.clone().follow());
    control.distributor.publish(&config_change(1, 1));
    let mut data = Data::start(control.address, certificates.proxy.path(), None, "")?;
    data.wait(|served| served.hosts() == 1).await?;
    // Both planes receive certificates of another CA.
    let other = Certificates::new()?;
    for (from, to) in [(&other.control, &certificates.control), (&other.proxy, &certificates.proxy)] {
        for name in ["tls.key", "tls.crt", "ca.crt"] {
            std::fs::copy(from.path().join(name), to.path().join(name))?;
        }
    }
    let mut late = Data::start(control.address, other.proxy.path(), None, "")?;
    late.wait(|served| served.hosts() == 1).await?;
    control.distributor.publish(&endpoints_change(0, 2));
    data.wait(|served| served.port(0) == Some(2)).await?;
    assert_eq!(data.telemetry.borrow().connections, 1, "the old connection stays");
    // The control plane ignores invalid files, and keeps its last valid certificate.
    std::fs::write(certificates.control.path().join("tls.key"), "broken")?;
    tokio::time::sleep(std::time::Duration::from_millis(1200)).await;
    let mut later = Data::start(control.address, other.proxy.path(), None, "")?;
    later.wait(|served| served.hosts() == 1).await?;
    follows.abort();
    Ok(())
}

#[test]
fn unusable_certificate_file_is_reported_with_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let why = || PlaneTls::read(dir.path()).err().map(|error| error.to_string()).unwrap_or_default();
    let path = dir.path().display();
    assert!(why().starts_with(&format!("{path}/tls.crt: cannot be read: ")), "{}", why());
    let (one, other) = (Authority::new(), Authority::new());
    save(dir.path(), &one.issue(&["a"]), &one).unwrap();
    assert_eq!(why(), "");
    std::fs::write(dir.path().join("tls.key"), other.issue(&["a"]).key_pem).unwrap();
    assert!(why().starts_with(&format!("{path}: the certificates cannot be used: ")), "{}", why());
    std::fs::write(dir.path().join("ca.crt"), "").unwrap();
    assert_eq!(why(), format!("{path}/ca.crt: contains no certificate in PEM"));
}
