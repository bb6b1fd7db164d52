//go:build tools

// Package tools names Contour, an ingress controller to compare with.
package tools

import _ "github.com/projectcontour/contour/cmd/contour"
