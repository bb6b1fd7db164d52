//go:build tools

// Package tools names the etcd server, the store of the test cluster.
package tools

import _ "go.etcd.io/etcd/server/v3"
