// CoreDNS with the plugins that the Gateway API conformance suite uses. Its manifests set the version in go.mod.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/whoami"
)

func main() {
	// The order of CoreDNS' own plugin.cfg.
	dnsserver.Directives = []string{"errors", "log", "forward", "whoami"}
	coremain.Run()
}
