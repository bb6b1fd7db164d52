// Command acmesolver responds to the HTTP-01 challenges of one order, with the flags of cert-manager's acmesolver.
package main

import (
	"flag"
	"log"

	"github.com/cert-manager/cert-manager/pkg/issuer/acme/http/solver"
	"github.com/go-logr/logr"
)

func main() {
	var s solver.HTTP01Solver
	flag.IntVar(&s.ListenPort, "listen-port", 8089, "the port of the HTTP server")
	flag.StringVar(&s.Domain, "domain", "", "the host of the challenge")
	flag.StringVar(&s.Token, "token", "", "the last segment of the path of the challenge")
	flag.StringVar(&s.Key, "key", "", "the content of the response")
	flag.Parse()
	log.Fatal(s.Listen(logr.Discard()))
}
