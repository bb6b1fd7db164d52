//go:build tools

// Package gatewayapi names the server of the conformance suite's pods.
package gatewayapi

import _ "sigs.k8s.io/gateway-api/conformance/echo-basic"
