//! Tests of gateways that run as separate processes.

mod apis;
mod backend_tls;
mod backend_traffic;
mod dashboard;
mod gateway_tls;
mod grpc_routes;
mod http_routes;
mod kong;
mod life;
mod listener_sets;
mod manifests;
mod nginx;
mod nginx_access;
mod nginx_behavior;
mod nginx_configmap;
mod nginx_records;
mod nginx_responses;
mod nginx_rewrites;
mod nginx_services;
mod planes;
mod plans;
mod policies;
mod restrictions;
mod support;
mod x_backends;
