//go:build tools

// Package tools names KWOK, which simulates nodes and their pods.
package tools

import _ "sigs.k8s.io/kwok/cmd/kwok"
