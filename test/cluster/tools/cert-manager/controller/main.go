// Command controller runs cert-manager's controllers for certificates of ACME issuers, with the settings of its chart.
//
// The module of cert-manager's own controller is not published, so this program starts the controllers of the main module.
// The program has no leader election and no metrics. It finds the API server by KUBECONFIG.
package main

import (
	"context"
	"flag"
	"log"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cert-manager/cert-manager/pkg/controller"
	_ "github.com/cert-manager/cert-manager/pkg/controller/acmechallenges"
	_ "github.com/cert-manager/cert-manager/pkg/controller/acmeorders"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificate-shim/gateways"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificate-shim/ingresses"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/acme"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	_ "github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/acme"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
)

// The number of workers of each controller, as in cert-manager.
const workers = 5

func main() {
	image := flag.String("acme-http01-solver-image", "", "the image of the pods that respond to HTTP-01 challenges")
	nameservers := flag.String("acme-http01-solver-nameservers", "", "the name servers of the self-checks, as HOST:PORT,...")
	resources := flag.String("cluster-resource-namespace", "cert-manager", "the namespace of the Secrets of ClusterIssuers")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx = klog.NewContext(ctx, klog.Background())
	options := options(*image, strings.Split(*nameservers, ","), *resources)
	if err := run(ctx, options); err != nil {
		log.Fatal(err)
	}
}

// options returns the defaults of cert-manager, with Gateway API enabled.
func options(image string, nameservers []string, resources string) controller.ContextOptions {
	return controller.ContextOptions{
		Kubeconfig:         os.Getenv("KUBECONFIG"),
		KubernetesAPIQPS:   20,
		KubernetesAPIBurst: 50,
		IssuerOptions: controller.IssuerOptions{
			ClusterResourceNamespace: resources,
		},
		ACMEOptions: controller.ACMEOptions{
			HTTP01SolverImage:                 image,
			HTTP01SolverResourceRequestCPU:    resource.MustParse("10m"),
			HTTP01SolverResourceRequestMemory: resource.MustParse("64Mi"),
			HTTP01SolverResourceLimitsCPU:     resource.MustParse("100m"),
			HTTP01SolverResourceLimitsMemory:  resource.MustParse("64Mi"),
			ACMEHTTP01SolverRunAsNonRoot:      true,
			HTTP01SolverNameservers:           nameservers,
			DNS01CheckRetryPeriod:             10 * time.Second,
		},
		IngressShimOptions: controller.IngressShimOptions{
			DefaultIssuerKind:                 "Issuer",
			DefaultIssuerGroup:                "cert-manager.io",
			DefaultAutoCertificateAnnotations: []string{"kubernetes.io/tls-acme"},
			GatewayAPIExtraProtocols:          sets.New[string](),
		},
		CertificateOptions: controller.CertificateOptions{
			CopiedAnnotationPrefixes:                 []string{"*", "-kubectl.kubernetes.io/", "-fluxcd.io/", "-argocd.argoproj.io/"},
			CertificateRequestMinimumBackoffDuration: time.Hour,
			CertificateRequestMaximumBackoffDuration: 32 * time.Hour,
		},
		SchedulerOptions: controller.SchedulerOptions{MaxConcurrentChallenges: 60},
		ConfigOptions:    controller.ConfigOptions{EnableGatewayAPI: true},
	}
}

// run runs all imported controllers until the context ends.
func run(ctx context.Context, options controller.ContextOptions) error {
	factory, err := controller.NewContextFactory(ctx, options)
	if err != nil {
		return err
	}
	known := controller.Known()
	built := map[string]controller.Interface{}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if built[name], err = known[name](factory); err != nil {
			return err
		}
	}
	// All controllers share the informers, and have registered their handlers.
	shared, err := factory.Build()
	if err != nil {
		return err
	}
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	shared.HTTP01ResourceMetadataInformersFactory.Start(ctx.Done())
	shared.GWShared.Start(ctx.Done())

	var running sync.WaitGroup
	for name, each := range built {
		running.Go(func() {
			if err := each.Run(workers, ctx); err != nil {
				log.Fatalf("%s: %v", name, err)
			}
		})
	}
	running.Wait()
	return nil
}
