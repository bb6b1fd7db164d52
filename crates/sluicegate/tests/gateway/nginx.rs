//! Gateways with Ingresses of class nginx.

use sluicegate_netns::Process;
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::{Client, Response};

use crate::support::Site;

pub(crate) const COMPATIBILITY: &[&str] = &["--ingress-nginx-compatibility", "--workers=1"];

/// An Ingress of class nginx with one path, and annotations without the prefix.
pub(crate) fn ingress(name: &str, annotations: &[(&str, &str)], host: &str, path: &str) -> String {
    let annotations: String = annotations
        .iter()
        .map(|(name, value)| format!("    nginx.ingress.kubernetes.io/{name}: {value:?}\n"))
        .collect();
    format!(
        "---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: {name}
  annotations:
    owner: shop
{annotations}spec:
  ingressClassName: nginx
  rules:
  - host: {host}
    http:
      paths:
      - path: {path:?}
        pathType: ImplementationSpecific
        backend: {{service: {{name: web, port: {{name: http}}}}}}
"
    )
}

/// A gateway with these Ingresses, in front of a backend that returns requests.
pub(crate) async fn serve(ingresses: &str) -> anyhow::Result<(Backend, Site, Process)> {
    let backend = Backend::start(Behaviour::echo()).await?;
    let site = Site::of([&backend])?;
    site.save("ingress.yaml", ingresses)?;
    let gateway = site.serve(COMPATIBILITY).await?;
    Ok((backend, site, gateway))
}

/// The response to a GET request with these header lines.
pub(crate) async fn get(site: &Site, host: &str, target: &str, lines: &str) -> anyhow::Result<Response> {
    let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n");
    Ok(Client::connect(site.http).await?.request(request).await?)
}
