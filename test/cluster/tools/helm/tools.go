//go:build tools

// Package tools names Helm, by which charts are tried.
package tools

import _ "helm.sh/helm/v4/cmd/helm"
