//! Data planes follow changes, also after failures and restarts of the control plane.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use sluicegate_link::DistributorOptions;
use sluicegate_model::feature::IpAccess;
use sluicegate_model::policy::{Consumer, KeyHash, Security};
use sluicegate_model::{Change, Config, ObjectId};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use crate::support::{Certificates, Control, Data, LIMIT, config, config_change, endpoints_change};

type TestResult = anyhow::Result<()>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_planes_receive_changes_and_report_the_version_that_they_serve() -> TestResult {
    let certificates = Certificates::new()?;
    let control = Control::start(certificates.control.path()).await?;
    let mut one = Data::start(control.address, certificates.proxy.path(), None, "one")?;
    // This data plane connects before the first configuration, and waits for the configuration.
    let first = control.distributor.publish(&config_change(10, 1));
    let mut two = Data::start(control.address, certificates.proxy.path(), None, "two")?;
    timeout(LIMIT, control.distributor.served_by(2, first)).await?;
    let before = control.distributor.telemetry();
    let newest = control.distributor.publish(&endpoints_change(3, 2));
    timeout(LIMIT, control.distributor.served_by(2, newest)).await?;
    for data in [&mut one, &mut two] {
        let served = data.wait(|served| served.port(3) == Some(2)).await?;
        assert_eq!((served.configs, served.endpoints, served.hosts()), (1, 1, 10), "the short path");
    }
    let after = control.distributor.telemetry();
    let bytes = after.counts.bytes - before.counts.bytes;
    assert!(bytes / 2 < 160, "{bytes} bytes for two data planes");
    let mut nodes: Vec<_> = after.subscribers.iter().map(|data| &*data.node).collect();
    nodes.sort_unstable();
    assert_eq!(nodes, ["one", "two"]);
    for data in &after.subscribers {
        assert_eq!(
            (&*data.identity, data.version, data.lag),
            ("sluicegate-data-plane", newest, Duration::ZERO)
        );
    }
    // A change without effect creates no new version.
    assert_eq!(control.distributor.publish(&endpoints_change(3, 2)), newest);
    assert_eq!(control.distributor.publish(&endpoints_change(77, 2)), newest, "nobody has such an upstream");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_plane_receives_a_route_change_of_several_messages_as_one_configuration() -> TestResult {
    let certificates = Certificates::new()?;
    let control = Control::start(certificates.control.path()).await?;
    // This configuration needs several messages.
    control.distributor.publish(&config_change(5000, 1));
    let mut data = Data::start(control.address, certificates.proxy.path(), None, "")?;
    let served = data.wait(|served| served.hosts() > 0).await?;
    assert_eq!((served.hosts(), served.configs), (5000, 1));
    let version = control.distributor.publish(&config_change(3, 2));
    timeout(LIMIT, control.distributor.served_by(1, version)).await?;
    let served = data.wait(|served| served.configs == 2).await?;
    let expected = config(3, 2);
    assert_eq!(served.config.as_deref().map(|config: &Config| config.hosts.clone()), Some(expected.hosts));
    assert_eq!(served.config.map(|config| config.upstreams.clone()), Some(expected.upstreams));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_control_plane_sends_data_planes_only_the_difference() -> TestResult {
    let certificates = Certificates::new()?;
    let control = Control::start(certificates.control.path()).await?;
    control.distributor.publish(&config_change(1000, 1));
    let mut data = Data::start(control.address, certificates.proxy.path(), None, "")?;
    data.wait(|served| served.hosts() == 1000).await?;
    let address = control.stop().await;

    // The configuration is the same, so the control plane sends no resource and requests no inventory.
    let options = DistributorOptions::default();
    let control = Control::start_at(address, certificates.control.path(), options.clone()).await?;
    let version = control.distributor.publish(&config_change(1000, 1));
    timeout(LIMIT, control.distributor.served_by(1, version)).await?;
    let counts = control.distributor.telemetry().counts;
    assert!(counts.inventories == 0 && counts.bytes < 100, "{counts:?}");
    let address = control.stop().await;

    // The new control plane lacks a host of the data plane, and has changed upstreams.
    let control = Control::start_at(address, certificates.control.path(), options).await?;
    let mut changed = config(999, 1);
    changed.upstreams.extend(config(5, 2).upstreams);
    let version = control.distributor.publish(&Change::Config(changed.into()));
    timeout(LIMIT, control.distributor.served_by(1, version)).await?;
    let counts = control.distributor.telemetry().counts;
    assert!(counts.inventories == 1 && counts.bytes < 2000, "{counts:?}");
    let served = data.wait(|served| served.hosts() == 999).await?;
    assert_eq!((served.port(4), served.port(5)), (Some(2), Some(1)));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reconnected_data_plane_receives_only_the_missed_changes() -> TestResult {
    let certificates = Certificates::new()?;
    let control = Control::start(certificates.control.path()).await?;
    let relay = Relay::start(control.address).await?;
    control.distributor.publish(&config_change(1000, 1));
    let mut data = Data::start(relay.address, certificates.proxy.path(), None, "")?;
    data.wait(|served| served.hosts() == 1000).await?;
    relay.cut();
    timeout(LIMIT, data.telemetry.wait_for(|telemetry| !telemetry.is_connected)).await??;
    while !control.distributor.telemetry().subscribers.is_empty() {
        tokio::task::yield_now().await;
    }
    let before = control.distributor.telemetry().counts.bytes;
    for port in 2..100 {
        control.distributor.publish(&endpoints_change(7, port));
    }
    relay.mend();
    let served = data.wait(|served| served.port(7) == Some(99)).await?;
    assert_eq!((served.configs, served.endpoints), (1, 1), "98 changes came as one");
    assert!(control.distributor.telemetry().counts.bytes - before < 200);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_plane_starts_from_its_snapshot_without_a_control_plane() -> TestResult {
    let certificates = Certificates::new()?;
    let dir = tempfile::tempdir()?;
    let snapshot = dir.path().join("snapshot");
    let control = Control::start(certificates.control.path()).await?;
    control.distributor.publish(&config_change(10, 1));
    let mut data = Data::start(control.address, certificates.proxy.path(), Some(&snapshot), "")?;
    data.wait(|served| served.hosts() == 10).await?;
    timeout(LIMIT, data.telemetry.wait_for(|telemetry| telemetry.snapshot_written.is_some())).await??;
    drop(data);
    let address = control.stop().await;

    let mut data = Data::start(address, certificates.proxy.path(), Some(&snapshot), "")?;
    let served = data.wait(|served| served.hosts() == 10).await?;
    assert_eq!(served.config.as_deref(), Some(&sorted(config(10, 1))));
    let options = DistributorOptions::default();
    let control = Control::start_at(address, certificates.control.path(), options).await?;
    control.distributor.publish(&config_change(10, 1));
    control.distributor.publish(&endpoints_change(0, 2));
    let served = data.wait(|served| served.port(0) == Some(2)).await?;
    assert_eq!(served.configs, 1, "only the difference came");
    drop(data);

    // The data plane ignores an invalid snapshot.
    std::fs::write(&snapshot, "nonsense")?;
    let mut data = Data::start(control.address, certificates.proxy.path(), Some(&snapshot), "")?;
    data.wait(|served| served.port(0) == Some(2)).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_plane_receives_policies_with_routes_and_stores_them_in_a_private_snapshot() -> TestResult {
    let certificates = Certificates::new()?;
    let dir = tempfile::tempdir()?;
    let snapshot = dir.path().join("snapshot");
    let control = Control::start(certificates.control.path()).await?;
    control.distributor.publish(&guarded(1));
    let mut data = Data::start(control.address, certificates.proxy.path(), Some(&snapshot), "")?;
    data.wait(|served| served.hosts() == 1).await?;
    timeout(LIMIT, data.telemetry.wait_for(|telemetry| telemetry.snapshot_written.is_some())).await??;
    let before = control.distributor.telemetry().counts.bytes;
    let Change::Config(newest) = guarded(2) else { unreachable!("it is one") };
    control.distributor.publish(&Change::Config(newest.clone()));
    data.wait(|served| served.config.as_ref().is_some_and(|config| config.consumers == newest.consumers))
        .await?;
    let bytes = control.distributor.telemetry().counts.bytes - before;
    assert!(bytes < 200, "one consumer of a thousand: {bytes}");
    drop(data);
    let address = control.stop().await;

    let mut data = Data::start(address, certificates.proxy.path(), Some(&snapshot), "")?;
    let served = data.wait(|served| served.hosts() == 1).await?;
    let config = served.config.expect("the configuration");
    assert_eq!(config.hosts, newest.hosts, "with its policies");
    assert_eq!(config.consumers.len(), 1000);
    assert_eq!(snapshot.metadata()?.permissions().mode() & 0o777, 0o600);
    assert!(std::fs::read(&snapshot)?.windows(32).any(|bytes| bytes == [7; 32]), "it has the keys");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_plane_prefers_an_available_control_plane_to_its_snapshot() -> TestResult {
    let certificates = Certificates::new()?;
    let dir = tempfile::tempdir()?;
    let snapshot = dir.path().join("snapshot");
    let control = Control::start(certificates.control.path()).await?;
    control.distributor.publish(&config_change(10, 1));
    let mut data = Data::start(control.address, certificates.proxy.path(), Some(&snapshot), "")?;
    timeout(LIMIT, data.telemetry.wait_for(|telemetry| telemetry.snapshot_written.is_some())).await??;
    drop(data);
    for hosts in [10, 11] {
        control.distributor.publish(&config_change(hosts, 1));
        let mut data = Data::start(control.address, certificates.proxy.path(), Some(&snapshot), "")?;
        let served = data.wait(|served| served.hosts() > 0).await?;
        assert_eq!((served.hosts(), served.configs), (hosts, 1), "nothing older was served");
    }
    Ok(())
}

/// A thousand consumers, one of them with this key, and a route that only these consumers may use.
fn guarded(key: u8) -> Change {
    let id = |name: String| ObjectId { kind: "Object", namespace: "shop".into(), name: name.into() };
    let consumer = |index| {
        let key = if index == 500 { key } else { 7 };
        let (id, username) = (id(format!("consumer-{index:04}")), format!("{index}").into());
        let keys = vec![KeyHash([key; 32])];
        Arc::new(Consumer {
            id,
            username,
            groups: vec![],
            keys,
            tokens: vec![],
            users: vec![],
            refused: false,
            terms: vec![],
        })
    };
    let authentication = serde_json::json!({"apiKey": {"from": [{"query": "key"}]}});
    let authentication = serde_json::from_value(authentication).expect("the fields are valid");
    let security = Security {
        id: id("keys".into()),
        refuses: None,
        ip_access: IpAccess::default(),
        cors: None,
        authentication: Some(authentication),
        authorization: None,
        forward_overrides: false,
        inherits: Vec::new(),
        filters: Vec::new(),
        satisfies_any: false,
    };
    let mut config = Config { consumers: (0..1000).map(consumer).collect(), ..config(1, 1) };
    Arc::make_mut(&mut config.hosts[0]).rules[0].security = Some(Arc::new(security));
    Change::Config(Arc::new(config))
}

/// The configuration with its hosts in the order of a data plane.
fn sorted(mut config: Config) -> Config {
    config.hosts.sort_by(|one, other| {
        let length = |host: &sluicegate_model::VirtualHost| host.host.to_string().len();
        (length(one), &one.host).cmp(&(length(other), &other.host))
    });
    config
}

/// A network path between two planes that the test can cut.
struct Relay {
    address: SocketAddr,
    is_cut: tokio::sync::watch::Sender<bool>,
}

impl Relay {
    async fn start(to: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (is_cut, receiver) = tokio::sync::watch::channel(false);
        tokio::spawn(async move {
            while let Ok((mut from, _)) = listener.accept().await {
                let mut is_cut = receiver.clone();
                tokio::spawn(async move {
                    if *is_cut.borrow() {
                        return;
                    }
                    let Ok(mut to) = TcpStream::connect(to).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut from, &mut to) => {}
                        _ = is_cut.wait_for(|is_cut| *is_cut) => {}
                    }
                });
            }
        });
        Ok(Self { address, is_cut })
    }

    fn cut(&self) {
        self.is_cut.send_replace(true);
    }

    fn mend(&self) {
        self.is_cut.send_replace(false);
    }
}

/// The address of a Service that passes connections to these control planes in turn.
async fn service(controls: [SocketAddr; 2]) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        for control in controls.into_iter().cycle() {
            let Ok((mut client, _)) = listener.accept().await else { return };
            tokio::spawn(async move {
                let mut server = TcpStream::connect(control).await?;
                tokio::io::copy_bidirectional(&mut client, &mut server).await
            });
        }
    });
    Ok(address)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_planes_gather_at_the_control_plane_that_does_not_yield() -> TestResult {
    let certificates = Certificates::new()?;
    let options =
        DistributorOptions { yield_after: Duration::from_millis(50), ..DistributorOptions::default() };
    let start =
        || Control::start_at(([127, 0, 0, 1], 0).into(), certificates.control.path(), options.clone());
    let (one, two) = (start().await?, start().await?);
    for control in [&one, &two] {
        control.distributor.publish(&config_change(10, 1));
    }
    let address = service([one.address, two.address]).await?;
    let mut planes = Vec::new();
    for node in ["a", "b", "c", "d"] {
        planes.push(Data::start(address, certificates.proxy.path(), None, node)?);
    }
    let gathered = async |here: &Control, there: &Control| {
        let are_here = async || {
            while here.distributor.telemetry().subscribers.len() < 4 {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(LIMIT, are_here()).await?;
        assert_eq!(there.distributor.telemetry().subscribers.len(), 0);
        anyhow::Ok(())
    };
    one.distributor.set_yields(true);
    gathered(&two, &one).await?;
    // The Lease changes hands.
    two.distributor.set_yields(true);
    one.distributor.set_yields(false);
    gathered(&one, &two).await?;
    // The data planes kept the configuration all the time, and receive changes from the new control plane.
    one.distributor.publish(&endpoints_change(3, 2));
    for data in &mut planes {
        let served = data.wait(|served| served.port(3) == Some(2)).await?;
        assert_eq!(served.configs, 1);
    }
    Ok(())
}
