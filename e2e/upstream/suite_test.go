package upstream

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	_ "k8s.io/component-base/logs/testinit"
	conformancedata "k8s.io/kubernetes/test/conformance/testdata"
	commontest "k8s.io/kubernetes/test/e2e/common"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	"k8s.io/kubernetes/test/e2e/framework/testfiles"
	manifests "k8s.io/kubernetes/test/e2e/testing-manifests"
	fixtures "k8s.io/kubernetes/test/fixtures"
	utilnet "k8s.io/utils/net"

	_ "k8s.io/kubernetes/test/e2e/feature"
	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"
	_ "k8s.io/kubernetes/test/e2e/framework/metrics/init"
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"

	_ "k8s.io/kubernetes/test/e2e/apimachinery"
	_ "k8s.io/kubernetes/test/e2e/apps"
	_ "k8s.io/kubernetes/test/e2e/architecture"
	_ "k8s.io/kubernetes/test/e2e/auth"
	_ "k8s.io/kubernetes/test/e2e/dra"
	_ "k8s.io/kubernetes/test/e2e/instrumentation"
	_ "k8s.io/kubernetes/test/e2e/kubectl"
	_ "k8s.io/kubernetes/test/e2e/network"
	_ "k8s.io/kubernetes/test/e2e/node"
	_ "k8s.io/kubernetes/test/e2e/scheduling"
	_ "k8s.io/kubernetes/test/e2e/storage"
)

var (
	selectionFile = flag.String("portico.selection", "selection.yaml", "which Conformance specs are not run, and why")
	recordFile    = flag.String("portico.record", "", "where to write what came of it; empty writes nothing")
	aggregator    = flag.String("portico.aggregator", "", "aggregator program to run the specs against; empty uses --kubeconfig")
	listFile      = flag.String("portico.list", "", "write the names of all specs to this file, and run none")
	namesFile     = flag.String("portico.names", "", "run the specs whose names this file has, each on a line, instead of the selection")
	linesFile     = flag.String("portico.lines", "", "add a line of JSON to this file when a spec has ended")
	limit         = flag.Duration("portico.limit", 0, "how long a spec may take; 0 leaves it to upstream")
)

// chosen is the selection that TestMain read, for the recorder.
var chosen *selection

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()

	testfiles.AddFileSource(manifests.GetE2ETestingManifestsFS())
	testfiles.AddFileSource(fixtures.GetTestFixturesFS())
	testfiles.AddFileSource(conformancedata.GetConformanceTestdataFS())

	if chosen, err = readSelection(*selectionFile); err != nil {
		return 0, err
	}
	switch {
	case *aggregator != "":
		dir, err := os.MkdirTemp("", "portico-upstream-")
		if err != nil {
			return 0, err
		}
		f, err := startFront(*aggregator, dir)
		if err != nil {
			return 0, err
		}
		defer func() {
			if err = errors.Join(err, f.stop()); err == nil && code == 0 {
				err = os.RemoveAll(dir) // else its log may be wanted
			}
		}()
		framework.TestContext.KubeConfig = f.kubeconfig
	case *listFile != "":
	case framework.TestContext.KubeConfig == "" && framework.TestContext.Host == "":
		return 0, errors.New("no server: give -portico.aggregator PROGRAM or -kubeconfig FILE after -args")
	}
	limitSpecs(*limit)
	framework.AfterReadingAllFlags(&framework.TestContext)
	addLines(*linesFile)
	return m.Run(), nil
}

// The specs' set-up also waits for nodes and system pods, which no spec here needs.
var _ = ginkgo.BeforeSuite(func(ctx context.Context) {
	commontest.CurrentSuite = commontest.E2E
	client, err := framework.LoadClientset()
	framework.ExpectNoError(err, "load the kubeconfig")
	service, err := client.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	framework.ExpectNoError(err, "get the Service kubernetes")
	framework.TestContext.IPFamily = "ipv4"
	if utilnet.IsIPv6String(service.Spec.ClusterIP) {
		framework.TestContext.IPFamily = "ipv6"
	}
})

var _ = ginkgo.ReportAfterSuite("what came of it", func(report ginkgo.Report) {
	if *recordFile == "" || report.SuiteConfig.DryRun { // the framework previews all specs, and there they all pass
		return
	}
	if err := record(*recordFile, chosen, report); err != nil {
		ginkgo.Fail(err.Error())
	}
})

const description = "Kubernetes specs"

func TestUpstream(t *testing.T) {
	gomega.RegisterFailHandler(framework.Fail)
	suite, reporter := framework.CreateGinkgoConfig()
	if *listFile != "" {
		if err := list(*listFile, ginkgo.PreviewSpecs(description)); err != nil {
			t.Fatal(err)
		}
		return
	}
	names := append(chosen.run(), chosen.Also...)
	if *namesFile != "" {
		var err error
		if names, err = readNames(*namesFile); err != nil {
			t.Fatal(err)
		}
	}
	if ginkgoSuite, _ := ginkgo.GinkgoConfiguration(); len(ginkgoSuite.FocusStrings) == 0 {
		suite.FocusStrings, suite.SkipStrings = []string{focus(names)}, nil
	}
	ginkgo.RunSpecs(t, description, suite, reporter)
}
