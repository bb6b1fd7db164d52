// A gRPC server for the conformance tests: gRPC's own test service, health and reflection, in clear text.
package main

import (
	"flag"
	"fmt"
	"log"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/interop"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/reflection"
)

func main() {
	port := flag.Int("port", 0, "where it listens, on 127.0.0.1")
	flag.Parse()
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	testpb.RegisterTestServiceServer(server, interop.NewTestServer())
	status := health.NewServer()
	status.SetServingStatus("grpc.testing.TestService", healthpb.HealthCheckResponse_SERVING)
	healthpb.RegisterHealthServer(server, status)
	reflection.Register(server)
	log.Fatal(server.Serve(listener))
}
